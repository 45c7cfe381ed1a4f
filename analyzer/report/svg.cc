// SPDX-License-Identifier: Apache-2.0
#include "analyzer/report/svg.h"

#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analyzer/report/format.h"
#include "analyzer/report/svg_script.h"

namespace dstrace::report {
namespace {

using Kind = FoldedStack::Kind;

constexpr double kWidth = 1200;  // user units of the plot
constexpr double kMargin = 10;
constexpr double kTop = 64;
constexpr double kRow = 18;
constexpr double kCharacter = 6.6;  // width of a character of the frame font

struct Node {
  std::string name;
  Kind kind = Kind::kGroup;
  uint64_t bytes = 0;
  std::map<std::string, std::unique_ptr<Node>> children;
};

std::string Escaped(const std::string& raw) {
  std::string out;
  for (const char c : Printable(raw)) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::unique_ptr<Node> Tree(const std::vector<FoldedStack>& stacks) {
  auto root = std::make_unique<Node>();
  root->name = "all";
  for (const FoldedStack& stack : stacks) {
    Node* node = root.get();
    node->bytes += stack.bytes;
    for (const FoldedStack::Frame& frame : stack.frames) {
      std::unique_ptr<Node>& child = node->children[frame.name];
      if (!child) {
        child = std::make_unique<Node>();
        child->name = frame.name;
        child->kind = frame.kind;
      }
      node = child.get();
      node->bytes += stack.bytes;
    }
  }
  return root;
}

size_t Depth(const Node& node) {
  size_t deepest = 0;
  for (const auto& [name, child] : node.children) {
    deepest = std::max(deepest, Depth(*child));
  }
  return deepest + 1;
}

// The user's own lines stand out; shades tell neighbours apart.
std::string Colour(const Node& node) {
  uint32_t hash = 2166136261;  // FNV-1a: the same name has the same shade
  for (const char c : node.name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  }
  const int shade = static_cast<int>(hash % 12);
  switch (node.kind) {
    case Kind::kUser:
      return absl::StrFormat("hsl(%d,90%%,%d%%)", 14 + shade, 62 + shade % 4);
    case Kind::kLibrary:
      return absl::StrFormat("hsl(%d,85%%,%d%%)", 42 + shade, 70 + shade % 5);
    case Kind::kNative:
      return absl::StrFormat("hsl(%d,45%%,%d%%)", 196 + shade, 74 + shade % 5);
    case Kind::kGroup:
      break;
  }
  return absl::StrFormat("hsl(210,10%%,%d%%)", 82 + shade / 3);
}

class Drawing {
 public:
  explicit Drawing(const Node& root) : whole_(root.bytes) {
    Draw(root, kMargin, kWidth, 0);
  }
  std::string Take() { return std::move(out_); }

 private:
  void Draw(const Node& node, double x, double width, size_t depth) {
    const double y = kTop + kRow * static_cast<double>(depth);
    const std::string name = Escaped(node.name);
    absl::StrAppendFormat(
        &out_,
        "<g class=\"f\" data-b=\"%d\" data-d=\"%d\"><title>%s\n%s, %s</title>"
        "<rect x=\"%.3f\" y=\"%.0f\" width=\"%.3f\" height=\"%.0f\" "
        "fill=\"%s\"/><text x=\"%.3f\" y=\"%.0f\">%s</text></g>\n",
        node.bytes, depth, name, Bytes(node.bytes), Share(node.bytes, whole_),
        x, y, width, kRow - 1, Colour(node), x + 3, y + 12.5,
        Escaped(Label(node.name, width)));
    std::vector<const Node*> children;
    for (const auto& [key, child] : node.children) {
      children.push_back(child.get());
    }
    std::stable_sort(
        children.begin(), children.end(),
        [](const Node* a, const Node* b) { return a->bytes > b->bytes; });
    for (const Node* child : children) {
      const double part = width * static_cast<double>(child->bytes) /
                          static_cast<double>(node.bytes);
      Draw(*child, x, part, depth + 1);
      x += part;
    }
  }

  // What fits into the frame, nothing below three characters.
  static std::string Label(const std::string& name, double width) {
    const auto room =
        static_cast<size_t>(std::max(0.0, width - 6) / kCharacter);
    return room < 3 ? "" : FitStart(name, room);
  }

  const uint64_t whole_;
  std::string out_;
};

constexpr char kStyle[] = R"(
svg { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 11px; }
rect.background { fill: #fbfbfa; }
.f { cursor: pointer; }
.f rect { stroke: #fbfbfa; stroke-width: 0.5; rx: 1.5px; }
.f:hover rect { stroke: #222; stroke-width: 1; }
.f text { pointer-events: none; fill: #1c1c1c; }
.f.above rect { opacity: 0.45; }
.f.hit rect { fill: #d64bd6; }
.title { font-size: 15px; font-weight: bold; fill: #1c1c1c; }
.hint, #details, #found { fill: #555; }
.button { cursor: pointer; fill: #1a5fb4; }
)";

}  // namespace

std::string Svg(const std::vector<FoldedStack>& stacks,
                const std::string& title) {
  const std::unique_ptr<Node> root = Tree(stacks);
  const double height =
      kTop + kRow * static_cast<double>(Depth(*root)) + 2 * kMargin;
  const double width = kWidth + 2 * kMargin;
  std::string out = absl::StrFormat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100%%\" "
      "viewBox=\"0 0 %.0f %.0f\" data-x=\"%.0f\" data-w=\"%.0f\" "
      "data-c=\"%.1f\">\n<style>%s</style>\n",
      width, height, kMargin, kWidth, kCharacter, kStyle);
  absl::StrAppendFormat(
      &out,
      "<rect class=\"background\" width=\"%.0f\" height=\"%.0f\"/>\n"
      "<text class=\"title\" x=\"%.0f\" y=\"22\">%s</text>\n"
      "<text id=\"details\" x=\"%.0f\" y=\"52\"> </text>\n"
      "<text id=\"back\" class=\"button\" x=\"%.0f\" y=\"22\" "
      "text-anchor=\"end\" visibility=\"hidden\">back</text>\n"
      "<text id=\"search\" class=\"button\" x=\"%.0f\" y=\"22\" "
      "text-anchor=\"end\">search</text>\n"
      "<text id=\"found\" x=\"%.0f\" y=\"52\" text-anchor=\"end\"> </text>\n",
      width, height, kMargin, Escaped(Fit(title, 115)), kMargin, width - 80,
      width - kMargin, width - kMargin);
  absl::StrAppendFormat(
      &out,
      "<text class=\"hint\" x=\"%.0f\" y=\"38\">%s: width is bytes; orange "
      "your code, yellow Python libraries, blue native code, grey groups. "
      "Click zooms.</text>\n",
      kMargin, Bytes(root->bytes));
  if (root->bytes > 0) {
    out += Drawing(*root).Take();
  } else {
    absl::StrAppendFormat(
        &out, "<text x=\"%.0f\" y=\"%.0f\">No memory was held.</text>\n",
        kMargin, kTop + 12);
  }
  absl::StrAppend(&out, "<script><![CDATA[", kSvgScript, "]]></script>\n",
                  "</svg>\n");
  return out;
}

}  // namespace dstrace::report
