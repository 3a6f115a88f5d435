"""Count the steps of a regular expression, so that a test can show that a search is linear."""

import re
from re import _compiler, _constants, _parser  # pyright: ignore[reportAttributeAccessIssue]

SINGLE = {"LITERAL", "NOT_LITERAL", "IN", "ANY"}


class Matcher:
    """A backtracking matcher that counts the nodes it tries. It knows the nodes that our patterns have."""

    def __init__(self, pattern: re.Pattern, text: str) -> None:
        self.text, self.flags, self.steps, self.compiled = text, pattern.flags, 0, {}
        self.tree = _parser.parse(pattern.pattern, pattern.flags)

    def matches(self, node, at: int) -> bool:
        """Whether `re` itself matches one node of no or one character."""
        key = repr(node)
        if key not in self.compiled:
            single = _parser.SubPattern(self.tree.state, [node])
            self.compiled[key] = _compiler.compile(single, self.flags)
        return self.compiled[key].match(self.text, at) is not None

    def ends(self, nodes, at: int):
        """Yield the ends of all matches of `nodes` that begin at `at`, in the order of a search."""
        nodes = list(nodes)
        if not nodes:
            yield at
            return
        for end in self.one(nodes[0], at):
            yield from self.ends(nodes[1:], end)

    def one(self, node, at: int):
        self.steps += 1
        op, argument = str(node[0]), node[1]
        if op in SINGLE:
            yield from [at + 1] if self.matches(node, at) else []
        elif op in ("AT", "ASSERT", "ASSERT_NOT"):
            yield from [at] if self.matches(node, at) else []
        elif op == "BRANCH":
            for branch in argument[1]:
                yield from self.ends(branch, at)
        elif op == "SUBPATTERN":
            yield from self.ends(argument[3], at)
        elif op in ("MAX_REPEAT", "POSSESSIVE_REPEAT"):
            every = self.repeats(argument, at, 0)
            yield from every if op == "MAX_REPEAT" else list(every)[:1]
        else:
            raise NotImplementedError(op)

    def repeats(self, argument, at: int, count: int):
        """Yield the ends of `count` and more repeats, the longest first."""
        least, most, inner = argument
        ends = [at]
        if len(inner) == 1 and str(inner[0][0]) in SINGLE:  # a loop, since a run may be longer than the stack
            while (most is _constants.MAXREPEAT or len(ends) <= most) and any(self.one(inner[0], ends[-1])):
                ends.append(ends[-1] + 1)
            yield from reversed(ends[least:])
            return
        if most is _constants.MAXREPEAT or count < most:
            for end in self.ends(inner, at):
                if end > at:
                    yield from self.repeats(argument, end, count + 1)
        if count >= least:
            yield at


def steps(pattern: re.Pattern, text: str) -> int:
    """Return how many nodes a backtracking search tries to find all matches of `pattern` in `text`."""
    matcher, at = Matcher(pattern, text), 0
    found = []
    while at <= len(text):
        end = next(matcher.ends(matcher.tree, at), None)
        found += [] if end is None else [text[at:end]]
        at = at + 1 if end is None or end == at else end
    assert found == [match.group() for match in pattern.finditer(text)]
    return matcher.steps
