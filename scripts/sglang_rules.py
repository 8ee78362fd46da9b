#!/usr/bin/env python3
"""SGLang's scheduling rules, implemented a second time, token by token and row by row: an independent check of `roofcast conformance`.

    scripts/sglang_rules.py check FOLDER          replays recordings, naming the first step that differs
    scripts/sglang_rules.py write FOLDER [SEED..] writes scenarios with the decisions of this model

Rules: SGLang 0.5.23 (`managers/scheduler.py`, `managers/schedule_policy.py`, `managers/schedule_batch.py`,
`mem_cache/`), as described in the README next to the recordings. The code favours plainness over speed.
"""
import json, pathlib, random, sys

CLIP, REFRESH, MATCH_MOST = 4096, 32, 128


def up(n, page):
    return -(-n // page) * page


class Node:
    def __init__(self, key, parent):
        self.key, self.parent, self.children, self.locks, self.stamp = key, parent, [], 0, 0


class Tree:
    def __init__(self, page):
        self.page, self.root, self.time = page, Node((), None), 0
        self.root.locks = 1

    def touch(self, node):
        self.time += 1
        node.stamp = self.time

    def aligned(self, tokens):
        return tuple(tokens[: len(tokens) // self.page * self.page])

    def child(self, node, rest):
        same = [c for c in node.children if c.key[: self.page] == rest[: self.page]]
        return same[0] if same and len(rest) >= self.page else None

    def common(self, key, rest):
        n = 0
        while n < min(len(key), len(rest)) and key[n : n + self.page] == rest[n : n + self.page]:
            n += self.page
        return n

    def split(self, node, n):
        above = Node(node.key[:n], node.parent)
        above.locks, above.children = node.locks, [node]
        node.parent.children[node.parent.children.index(node)] = above
        node.parent, node.key = above, node.key[n:]
        self.touch(above)
        self.touch(node)
        return above

    def match(self, tokens):
        rest, node, found, path = self.aligned(tokens), self.root, 0, []
        while child := self.child(node, rest):
            n = self.common(child.key, rest)
            node = child if n == len(child.key) else self.split(child, n)
            whole = node is child
            path.append(node)
            found, rest = found + n, rest[n:]
            if not whole:
                break
        for one in path:
            self.touch(one)
        return node, found

    def insert(self, tokens):
        rest, node, found = self.aligned(tokens), self.root, 0
        while child := self.child(node, rest):
            self.touch(child)
            n = self.common(child.key, rest)
            node = child if n == len(child.key) else self.split(child, n)
            found, rest = found + n, rest[n:]
            if node is not child:
                break
        if rest:
            leaf = Node(rest, node)
            node.children.append(leaf)
            self.touch(leaf)
            node = leaf
        return node, found

    def nodes(self):
        todo = list(self.root.children)
        while todo:
            node = todo.pop()
            todo += node.children
            yield node

    def evictable(self):
        return sum(len(n.key) for n in self.nodes() if n.locks == 0)

    def lock(self, node, by):
        while node is not self.root:
            node.locks += by
            node = node.parent

    def evict(self):
        leaves = [n for n in self.nodes() if not n.children and n.locks == 0]
        if not leaves:
            return 0
        oldest = min(leaves, key=lambda n: n.stamp)
        oldest.parent.children.remove(oldest)
        return len(oldest.key)


class Req:
    def __init__(self, line, low_first):
        self.id, self.arrival = line["id"], line["arrival_step"]
        self.prompt = [(s, a + k) for s, a, n in line["prompt"] for k in range(n)]
        self.bound, self.output, self.ignore_eos = line["max_new_tokens"], line["output_len"], line["ignore_eos"]
        default = sys.maxsize if low_first else -sys.maxsize
        self.priority = default if line["priority"] is None else line["priority"]
        self.generated = self.kv = self.shared = self.prefix = self.filled = 0
        self.entered, self.node, self.row = 0, None, False
        self.finished = self.retracted = self.middle = False

    def known(self):
        return len(self.prompt) + self.generated

    def tokens(self):
        out = [("out:" + self.id, k) for k in range(self.output)]
        if self.output < self.bound:
            out[-1] = ("eos", 0)
        return self.prompt + out

    def done(self):
        return self.generated >= self.output


class Stop(Exception):
    pass


class Model:
    def __init__(self, config, requests, version="0.5.23"):
        self.c = config
        self.page = config["page_size"]
        self.tree = None if config["disable_radix_cache"] else Tree(self.page)
        self.available = config["max_total_tokens"] // self.page * self.page
        self.rows_in_all = min(config["max_running_requests"], config["max_total_tokens"] // 2)
        chunk = config["chunked_prefill_size"]
        self.chunk_size = chunk if chunk > 0 else None
        self.mixed = config["enable_mixed_chunk"] and self.chunk_size is not None
        self.low = config["schedule_low_priority_values_first"]
        self.preempts = config["enable_priority_scheduling"] and not config["disable_priority_preemption"]
        self.overlap = not config["disable_overlap_schedule"]
        parts = tuple(int(p) for p in version.split(".")[:3])
        self.new, self.splits = parts >= (0, 5, 22), parts >= (0, 5, 20)
        self.init = min(0.7 * config["schedule_conservativeness"], 1.0)
        self.least = min(self.init * 0.14, 1.0)
        self.decay, self.ratio = (self.init - self.least) / 600.0, self.init
        self.requests = [Req(line, self.low) for line in requests]
        self.waiting, self.running, self.full, self.chunked = [], [], False, None
        self.last = None  # kind, extends, decodes
        self.results, self.entries, self.passes, self.rows = [], 0, 0, 0

    # -- memory

    def evictable(self):
        return self.tree.evictable() if self.tree else 0

    def evict_until(self, tokens):
        while self.tree and self.available < tokens:
            freed = self.tree.evict()
            if not freed:
                return
            self.available += freed

    def decode_fits(self, rows):
        needed = sum(self.page for r in rows if r.kv % self.page == 0)
        self.evict_until(needed)
        return needed <= self.available

    def take_decode(self, rows):
        self.evict_until(len(rows) * self.page)
        for r in rows:
            if r.kv % self.page == 0:
                self.available -= self.page
            r.kv += 1

    def keep(self, r, length):
        if not self.tree:
            return
        pages, prompt = length // self.page * self.page, len(r.prompt) // self.page * self.page
        tokens = r.tokens()[:pages]
        node, there = self.tree.insert(tokens)
        if self.splits and 0 < prompt < pages:
            self.tree.insert(tokens[:prompt])
        # Meanwhile the node may have been split above, but not below.
        self.tree.lock(node, 1)
        if r.node is not None:
            self.tree.lock(r.node, -1)
        self.available += max(there - r.shared, 0)
        r.node, r.shared = node, pages

    def free(self, r):
        self.available += up(r.kv, self.page) - r.shared
        if r.node is not None:
            self.tree.lock(r.node, -1)
        r.node, r.shared, r.kv, r.prefix, r.row = None, 0, 0, 0, False

    def match(self, r, length):
        if not self.tree:
            r.prefix, found = 0, None
        else:
            found, r.prefix = self.tree.match(r.tokens()[:length])
        r.found = found

    # -- the loop

    def iterate(self, step):
        out = {"step": step, "preempted": [], "retracted": [], "cached": {}, "extends": [], "rows": [], "kind": "idle"}
        out["arrived"] = [r.id for r in self.requests if r.arrival == step]
        for r in self.requests:
            if r.arrival == step:
                self.enqueue(r)
        out["ratio"] = self.ratio
        batch = self.decide(out)
        out["ratio_after"], out["kv"] = self.ratio, [self.available, self.evictable()]
        out["running"] = [r.id for r in self.running]
        out["waiting"], out["full"] = [r.id for r in self.waiting], self.full
        out["chunked"] = self.chunked.id if self.chunked and batch else None
        if batch:
            self.results.append(batch)
        done = []
        if self.overlap:
            if self.last:
                done = self.process(self.results.pop(0))
            elif not batch:
                self.idle()
        elif batch:
            done = self.process(self.results.pop(0))
        else:
            self.idle()
        self.last = batch
        out["finished"], out["ratio_end"], out["kv_end"] = done, self.ratio, [self.available, self.evictable()]
        return out

    def idle(self):
        if not (self.waiting or self.running or self.chunked or self.results):
            self.ratio = self.init

    def enqueue(self, r):
        self.entries += 1
        r.entered = self.entries
        self.waiting.append(r)

    def decide(self, out):
        chunked = self.chunked
        if chunked:
            self.keep(chunked, chunked.kv)
            chunked.prefix = chunked.kv
        if self.last and self.last[0] in ("extend", "mixed"):
            batch = self.last[1] + self.last[2]
            stay = [r for r in batch if not r.finished and r is not chunked and r is not self.last[3]]
            if len(stay) < len(batch):
                self.full = False
            if stay:
                if not self.running:
                    self.full = False
                self.running = self.running + stay
        before = len(self.running)
        self.running = [r for r in self.running if not r.finished]
        if len(self.running) < before:
            self.full = False
        batch = self.prefill(out)
        if batch is None and self.running:
            batch = self.decode(out)
        return batch

    # -- prompts

    def offset(self, r):
        ratio = 1.0 if r.ignore_eos and self.new else self.ratio
        return min(r.bound - r.generated, CLIP) * ratio

    def allocatable(self, held=0):
        rows = sum(r.row for r in self.requests)
        return min(self.rows_in_all - len(self.running), max(self.rows_in_all - rows + held, 0))

    def total(self):
        return self.available + self.evictable() - self.total_offset

    def current(self):
        return self.available + self.evictable() - self.current_offset

    def state(self):
        if self.total() <= 0 or self.current() <= 0:
            return "tokens"
        if self.input <= 0 or (self.chunk is not None and self.chunk <= 0):
            return "other"
        return None

    def charge(self, new, bound):
        new = up(new, self.page)
        self.total_offset += new + self.page + bound
        self.current_offset += new + self.page
        self.input -= new
        if self.chunk is not None:
            self.chunk -= new

    def prefill(self, out):
        if self.preempts or not self.running:
            self.full = False
        if (self.full or not self.waiting) and not self.chunked:
            return None
        if self.allocatable() <= 0 and not self.chunked and not self.preempts:
            self.full = True
            return None
        self.sort()
        out["sorted"] = [r.id for r in self.waiting]
        beside = len(self.running) if self.mixed else 0
        self.total_offset = beside + sum([self.offset(r) for r in self.running])
        self.current_offset, self.input = beside, self.c["max_prefill_tokens"] - beside
        self.chunk = None if self.chunk_size is None else self.chunk_size - beside
        self.can_run, self.preempt_list, self.new_chunked, self.ends = [], [], None, None
        if self.chunked:
            self.add_chunked()
        for r in list(self.waiting):
            if self.state() == "other":
                break
            if len(self.can_run) >= self.allocatable(sum(r.row for r in self.can_run)):
                self.full = True
            if self.full and not (self.preempts and self.preempt_for(r)):
                break
            r.filled = r.known()
            self.match(r, r.known() - 1)
            stop = self.add_one(r)
            if stop == "tokens":
                self.full = bool(self.can_run) or bool(self.running)
            if stop:
                break
        out["preempted"] = [r.id for r in self.preempt_list]
        if not self.can_run:
            for r in self.preempt_list:
                self.enqueue(r)
            return None
        for r in self.can_run:
            if r in self.waiting and r.prefix:
                out["cached"][r.id] = r.prefix
        self.waiting = [r for r in self.waiting if r not in self.can_run]
        for r in self.preempt_list:
            self.enqueue(r)
        if self.new_chunked:
            assert self.chunked is None
            self.chunked = self.new_chunked
        self.allocate()
        for r in self.can_run:
            out["extends"].append([r.id, r.end - r.prefix])
        out["kind"], rows = "extend", []
        if self.mixed and self.running:
            self.drop_finishing()
            if self.running and self.decode_fits(self.running):
                self.take_decode(self.running)
                rows, self.running, out["kind"] = self.running, [], "mixed"
                for r in rows:
                    r.filled = r.known()
        out["rows"] = [[r.id, 1] for r in rows]
        return (out["kind"], self.can_run, rows, self.chunked)

    def allocate(self):
        new = sum(r.end - r.prefix for r in self.can_run)
        self.evict_until(new + (0 if self.page == 1 else len(self.can_run) * self.page))
        for r in self.can_run:
            needed = up(r.end, self.page) - up(r.prefix, self.page)
            self.available -= needed
            r.kv, r.row, r.retracted = r.end, True, False
            r.middle = r is self.chunked
        if self.available < 0:
            raise Stop("the pool ran out in an extend, as SGLang's would")

    def sort(self):
        c = self.c
        prefixes = c["schedule_policy"] == "lpm" and self.tree is not None
        if prefixes and len(self.waiting) <= MATCH_MOST:
            others, last = Tree(1), set()
            for r in self.waiting:
                tokens = r.tokens()[: r.known()]
                self.match(r, r.known())
                r.matched = min(r.prefix, r.known() - 1)
                if r.prefix <= 32:
                    if others.match(tokens)[1] >= 32:
                        last.add(r.id)
                    else:
                        others.insert(tokens)
            self.waiting.sort(key=lambda r: float("inf") if r.id in last else -r.matched)
            return
        if not prefixes and c["enable_priority_scheduling"]:
            self.waiting.sort(key=lambda r: (r.priority if self.low else -r.priority, r.entered))
        if self.new and self.tree and self.waiting:
            self.passes += 1
            if self.passes % REFRESH == 1:
                for r in reversed(self.waiting[:MATCH_MOST]):
                    self.tree.match(r.tokens()[: r.known()])

    def add_chunked(self):
        r = self.chunked
        room = min(self.chunk, int(self.total()))
        room = room if room > 0 else self.chunk
        rest = r.known() - r.prefix
        new = min(rest, room)
        if new <= 0:
            raise Stop("a chunk of nothing")
        r.end = r.prefix + new
        self.can_run.append(r)
        self.charge(new, min(r.bound, CLIP) if new == rest else 0)
        self.chunked = None if new == rest else r

    def add_one(self, r):
        most = self.c["prefill_max_requests"]
        if most is not None and len(self.can_run) >= most:
            return "other"
        rest = r.known() - r.prefix
        if r.ignore_eos and self.tree is None:
            return self.add_exact(r, rest)
        bound = min(max(r.bound - r.generated, 0), CLIP)
        if self.tree:
            self.tree.lock(r.found, 1)
        try:
            if rest + bound + self.page >= self.total():
                return "tokens"
            whole = up(rest, self.page)
            if self.chunk is None and self.can_run and whole >= self.input:
                return "other"
            new = rest
            if self.chunk is not None and whole > self.chunk:
                new = self.chunk // self.page * self.page
                new = (r.prefix + new) // self.page * self.page - r.prefix
                if new <= 0:
                    return "other"
        finally:
            if self.tree:
                self.tree.lock(r.found, -1)
        if self.tree:
            self.tree.lock(r.found, 1)
            r.node, r.shared = r.found, r.prefix
        self.admit(r, new, rest)
        return self.state()

    def admit(self, r, new, rest):
        r.end = r.prefix + new
        self.can_run.append(r)
        chunks = new < rest
        if chunks:
            if self.chunked or self.new_chunked:
                raise Stop("two chunked requests, of which SGLang would lose one")
            self.new_chunked = r
        self.charge(new, 0 if chunks else min(r.bound, CLIP))

    def add_exact(self, r, rest):
        paged = up(rest, self.page) + self.page
        if paged > min(self.current(), self.total()):
            return "tokens"

        def end_of(q):
            ratio = 1.0 if q.ignore_eos and self.new else self.ratio
            return q.bound * ratio - q.generated, len(q.prompt) + q.generated

        if self.ends is None:
            every = [end_of(q) for q in [r] + self.running + self.can_run]
            self.ends = sorted([e for e in every if e[0] > 0], key=lambda e: e[0])
        else:
            left, held = end_of(r)
            if left > 0:
                at = 0
                for at in range(len(self.ends)):
                    if left <= self.ends[at][0]:
                        break
                self.ends.insert(at, (left, held))
        now, freed = self.current() - paged, 0
        for i, (left, held) in enumerate(self.ends):
            there = len(self.ends) - i
            if now + freed - left * there <= there:
                return "tokens"
            freed += held
        if self.chunk is None or rest <= self.chunk:
            new = rest
        elif self.chunk <= 0:
            return "other"
        else:
            new = self.chunk
        self.admit(r, new, rest)
        return self.state()

    def preempt_for(self, r):
        sign = -1 if self.low else 1
        order = sorted(self.running, key=lambda v: (sign * v.priority, -v.entered))
        missing = r.filled - r.prefix + min(r.bound, CLIP) - self.total()
        victims = []
        for v in order:
            if (r.priority - v.priority) * sign <= self.c["priority_scheduling_preemption_threshold"]:
                break
            victims.append(v)
            missing -= self.offset(v)
            if missing <= 0:
                break
        if not victims or missing > 0:
            return False
        others = len(self.running)
        for v in [v for v in self.running if v in victims]:
            self.total_offset -= self.offset(v)
            others -= 1
            self.release(v, others)
        self.running = [v for v in self.running if v not in victims]
        self.preempt_list += victims
        return True

    def release(self, r, others):
        self.free(r)
        self.evict_until(others * 20)
        r.retracted = True

    # -- decodes

    def drop_finishing(self):
        if not self.overlap or not self.new or not self.results:
            return False
        queued = self.results[0][1] + self.results[0][2]
        finishing = [r for r in self.running if r in queued and r.generated + 1 >= r.bound]
        self.running = [r for r in self.running if r not in finishing]
        if finishing:
            self.full = False
        return bool(finishing)

    def decode(self, out):
        finishing = self.drop_finishing()
        if not self.running:
            self.full = False
            return None
        if not self.decode_fits(self.running):
            if finishing:
                self.full = False
                return None
            self.retract(out)
            self.full = False
        else:
            self.ratio = max(self.ratio - self.decay, self.least)
        if not self.running:
            return None
        self.take_decode(self.running)
        out["kind"], out["rows"] = "decode", [[r.id, 1] for r in self.running]
        return ("decode", [], list(self.running), None)

    def retract(self, out):
        low = -1 if self.low else 1
        by = self.c["retraction_policy"] == "priority"
        key = lambda r: ((low * r.priority,) if by else ()) + (r.generated, -len(r.prompt))
        order, gone = sorted(self.running, key=key, reverse=True), []
        while not gone or not self.decode_fits(order):
            if len(order) == 1:
                break
            victim = order.pop()
            self.release(victim, len(order))
            gone.append(victim)
        if not self.decode_fits(order):
            raise Stop("one request alone does not fit")
        if gone:
            self.running = order
        generated = sum(r.generated for r in order)
        self.ratio = min(1.0, (generated + 20 * len(order)) / (sum(r.bound for r in order) + 1))
        out["retracted"] = [r.id for r in gone]
        for r in gone:
            self.enqueue(r)

    # -- results

    def process(self, batch):
        _, extends, rows, chunked = batch
        done = []
        for r in extends + rows:
            if r.finished or r.retracted or r is chunked:
                continue
            r.generated += 1
            if r.done():
                self.keep(r, min(r.kv, r.known()))
                self.free(r)
                r.finished = True
                done.append(r.id)
            elif r in extends:
                # Decodes decided meanwhile have already extended the sequence; only its prompt is inserted.
                self.keep(r, r.kv if not self.overlap else r.end)
        return done


def steps_of(config, requests, version="0.5.23", most=4000):
    model, steps, quiet = Model(config, requests, version), [], 0
    last = max(r["arrival_step"] for r in requests)
    for index in range(most):
        out = model.iterate(index)
        steps.append(out)
        quiet = quiet + 1 if out["kind"] == "idle" and index > last else 0
        if out["kind"] == "idle" and all(r.finished for r in model.requests) and not model.results:
            return steps
        if quiet > 2:
            raise Stop("nothing moves")
    raise Stop("too long")


def line(out):
    step = {"step": out["step"], "arrived": out["arrived"], "kind": out["kind"], "sorted": out.get("sorted", [])}
    step |= {"scheduled": out["extends"] + out["rows"], "cached": out["cached"], "chunked": out["chunked"]}
    keys = ["preempted", "retracted", "running", "full", "waiting", "ratio", "ratio_after", "ratio_end", "kv", "kv_end"]
    return step | {key: out[key] for key in keys} | {"finished": out["finished"]}


def differs(recorded, ours):
    """The fields in which a recorded step differs, after its omitted fields are set to their defaults."""
    empty = {"cached": {}, "full": False, "chunked": None}
    filled = {key: recorded.get(key, empty.get(key, [])) for key in ours}
    filled["ratio_after"] = recorded.get("ratio_after", recorded["ratio"])
    filled["ratio_end"] = recorded.get("ratio_end", filled["ratio_after"])
    filled["kv_end"] = recorded.get("kv_end", recorded["kv"])
    return {key: (filled[key], ours[key]) for key in ours if filled[key] != ours[key]}


def check(folder):
    wrong = 0
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        trace = json.loads(path.read_text())
        version = trace["meta"]["sglang_version"]
        steps = {s["step"]: line(s) for s in steps_of(trace["config"], trace["requests"], version, 100000)}
        found = next(((s["step"], d) for s in trace["steps"] if (d := differs(s, steps[s["step"]]))), None)
        wrong += found is not None
        print(path.stem, "agrees" if found is None else f"differs in step {found[0]}: {found[1]}")
    return wrong


def scenario(seed):
    """A small random scenario: pages, chunks, mixed batches, both loops, radix cache on and off, priorities, versions."""
    rng = random.Random(seed)
    pick = lambda *all: rng.choice(all)
    page = pick(1, 1, 2, 4, 8, 16)
    most_running = rng.randint(2, 12)
    chunk = pick(-1, rng.randint(2, 12) * page * pick(1, 2, 4))
    mixed = chunk > most_running and rng.random() < 0.5
    priority = rng.random() < 0.4
    tokens = rng.randint(12, 60) * pick(4, 8, 16)
    longest = max(tokens // 3, 8)
    config = {
        "schedule_policy": "fcfs" if priority else pick("fcfs", "lpm"),
        "schedule_conservativeness": pick(0.02, 0.1, 0.3, 1.0, 1.5),
        "max_total_tokens": max(tokens, 8 * page), "max_running_requests": most_running,
        "max_prefill_tokens": pick(16384, rng.randint(1, 6) * 16), "chunked_prefill_size": chunk,
        "enable_mixed_chunk": mixed, "page_size": page, "disable_radix_cache": rng.random() < 0.35,
        "context_length": 8192, "enable_priority_scheduling": priority,
        "schedule_low_priority_values_first": rng.random() < 0.5,
        "priority_scheduling_preemption_threshold": rng.randint(0, 3),
        "disable_priority_preemption": rng.random() < 0.3, "retraction_policy": pick("length", "priority"),
        "prefill_max_requests": pick(None, None, 1, 2, 3), "disable_overlap_schedule": rng.random() < 0.5,
        "radix_eviction_policy": "lru",
    }
    requests, at, eos = [], 0, pick(0.0, 0.5, 1.0)
    for number in range(rng.randint(3, 16)):
        at += pick(0, 0, 1, 2, 5, 20)
        name, prompt = f"r{number:04}", []
        if requests and rng.random() < 0.3:
            past = rng.choice(requests)
            prompt = [list(run) for run in past["prompt"]] + [["out:" + past["id"], 0, rng.randint(1, past["output_len"])]]
        elif rng.random() < 0.6:
            prompt = [[f"s{rng.randint(0, 2)}", 0, rng.randint(1, longest)]]
        prompt.append(["u:" + name, 0, rng.randint(1, max(longest // 3, 2))])
        length = sum(run[2] for run in prompt)
        bound = rng.randint(1, max(longest, 3))
        fixed = rng.random() < eos
        requests.append({
            "id": name, "arrival_step": at, "prompt_len": length,
            "output_len": bound if fixed else rng.randint(1, bound), "max_new_tokens": bound, "ignore_eos": fixed,
            "priority": pick(None, 0, 1, 3, 7) if priority else None, "prompt": prompt,
        })
    return config, requests, pick("0.5.23", "0.5.23", "0.5.23", "0.5.21", "0.5.15")


def write(folder, seeds):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        config, requests, version = scenario(seed)
        pool = config["max_total_tokens"]
        if any(r["prompt_len"] + r["max_new_tokens"] + 3 * config["page_size"] >= pool for r in requests):
            continue
        try:
            steps = [line(out) for out in steps_of(config, requests, version)]
        except Stop:
            continue
        meta = {"sglang_version": version, "schema": "sglang-sched-trace/1", "generator": "scripts/sglang_rules.py", "seed": seed}
        lines = ["{", f'"name":"rules_{seed}",', f'"meta":{json.dumps(meta)},', f'"config":{json.dumps(config)},', '"requests":[']
        lines += [",\n".join(map(json.dumps, requests)), "],", '"steps":[', ",\n".join(map(json.dumps, steps)), "]}"]
        (folder / f"rules_{seed}.json").write_text("\n".join(lines) + "\n")


def main():
    verb, folder, *rest = sys.argv[1:]
    if verb == "check":
        sys.exit(1 if check(folder) else 0)
    first, count = (int(n) for n in (rest + ["0", "100"])[:2])
    write(folder, range(first, first + count))


if __name__ == "__main__":
    main()
