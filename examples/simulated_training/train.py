# SPDX-License-Identifier: Apache-2.0
"""A small language model in training, on a GPU that is not there.

No GPU and no PyTorch: gpu.py stands in for both, and computes nothing. What is
real is the order and size of the allocations, and the Python that asks for
them. So a machine without a GPU can show what a dstrace report looks like:

    tools/demo.sh
"""
import gpu

HIDDEN, LAYERS, HEADS, VOCABULARY = 1024, 8, 16, 32000
BATCH, SEQUENCE, STEPS = 4, 512, 5


class Module:
    def __init__(self):
        self.parameters = []
        self.children = []

    def parameter(self, *shape):
        weight = gpu.empty(shape, gpu.FLOAT16)
        weight.grad = None
        self.parameters.append(weight)
        return weight

    def child(self, module):
        self.children.append(module)
        return module

    def all_parameters(self):
        found = list(self.parameters)
        for module in self.children:
            found += module.all_parameters()
        return found

    def __call__(self, *inputs):
        return self.forward(*inputs)


class Linear(Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.outputs = outputs
        self.weight = self.parameter(outputs, inputs)
        self.bias = self.parameter(outputs)

    def forward(self, x):
        return gpu.empty(x.shape[:-1] + (self.outputs,), gpu.FLOAT16)


class Attention(Module):
    def __init__(self):
        super().__init__()
        self.qkv = self.child(Linear(HIDDEN, 3 * HIDDEN))
        self.out = self.child(Linear(HIDDEN, HIDDEN))

    def forward(self, x, tape):
        qkv = tape.keep(self.qkv(x))
        scores = gpu.empty((BATCH, HEADS, SEQUENCE, SEQUENCE), gpu.FLOAT16)
        tape.keep(self.softmax(scores))
        mixed = tape.keep(gpu.empty(x.shape, gpu.FLOAT16))
        assert qkv.bytes == 3 * mixed.bytes
        return self.out(mixed)

    def softmax(self, scores):
        return gpu.empty(scores.shape, gpu.FLOAT16)


class FeedForward(Module):
    def __init__(self):
        super().__init__()
        self.up = self.child(Linear(HIDDEN, 4 * HIDDEN))
        self.down = self.child(Linear(4 * HIDDEN, HIDDEN))

    def forward(self, x, tape):
        raised = tape.keep(self.up(x))
        activated = tape.keep(gpu.empty(raised.shape, gpu.FLOAT16))
        return self.down(activated)


class Block(Module):
    def __init__(self):
        super().__init__()
        self.attention = self.child(Attention())
        self.feed_forward = self.child(FeedForward())

    def forward(self, x, tape):
        x = tape.keep(self.attention(x, tape))
        return tape.keep(self.feed_forward(x, tape))


class Model(Module):
    def __init__(self):
        super().__init__()
        self.embedding = self.parameter(VOCABULARY, HIDDEN)
        self.blocks = [self.child(Block()) for _ in range(LAYERS)]

    def forward(self, tokens, tape):
        x = tape.keep(gpu.empty(tokens.shape + (HIDDEN,), gpu.FLOAT16))
        for block in self.blocks:
            x = block(x, tape)
        return self.loss(x, tape)

    def loss(self, x, tape):
        logits = tape.keep(gpu.empty(x.shape[:-1] + (VOCABULARY,), gpu.FLOAT16))
        tape.keep(gpu.empty(logits.shape, gpu.FLOAT32))  # log-softmax
        return gpu.empty((1,), gpu.FLOAT32)


class Tape:
    """What forward must keep for backward, in order."""

    def __init__(self):
        self.saved = []

    def keep(self, tensor):
        self.saved.append(tensor)
        return tensor


def backward(loss, tape, parameters):
    """Walks the tape back: each saved tensor is used, and freed."""
    gradient = gpu.empty(loss.shape, gpu.FLOAT32)
    todo = list(parameters)
    while tape.saved:
        gradient = gpu.empty(tape.saved.pop().shape, gpu.FLOAT16)
        if todo and len(tape.saved) % 2 == 0:
            accumulate(todo.pop())
    while todo:
        accumulate(todo.pop())
    return gradient


def accumulate(parameter):
    if parameter.grad is None:
        parameter.grad = gpu.empty(parameter.shape, gpu.FLOAT16)


class Adam:
    def __init__(self, parameters):
        self.parameters = parameters
        self.state = {}
        self.master = [self.fp32_copy(weight) for weight in parameters]

    def fp32_copy(self, weight):
        return gpu.empty(weight.shape, gpu.FLOAT32)

    def init_state(self, index):
        shape = self.parameters[index].shape
        self.state[index] = (gpu.empty(shape, gpu.FLOAT32), gpu.empty(shape, gpu.FLOAT32))

    def step(self):
        for index, weight in enumerate(self.parameters):
            if index not in self.state:
                self.init_state(index)
            self.update(weight)

    def update(self, weight):
        unscaled = gpu.empty(weight.shape, gpu.FLOAT32)
        return gpu.empty(unscaled.shape, gpu.FLOAT32)

    def zero_grad(self):
        for weight in self.parameters:
            weight.grad = None


def train_step(model, optimizer):
    tape = Tape()
    tokens = gpu.empty((BATCH, SEQUENCE), gpu.INT64)
    loss = model(tokens, tape)
    backward(loss, tape, model.all_parameters())
    gpu.all_reduce(optimizer.parameters)
    optimizer.step()
    optimizer.zero_grad()


def main():
    gpu.init_process_group()
    model = Model()
    optimizer = Adam(model.all_parameters())
    for _ in range(STEPS):
        train_step(model, optimizer)
    print("trained %d steps on a simulated GPU" % STEPS)


if __name__ == "__main__":
    main()
