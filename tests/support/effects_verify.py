"""What a trial has to show: at most one effect per key, no lost completion, one answer for all, and no open end."""

from collections import Counter, defaultdict

import effects_own
from effects_target import Ground
from effects_tools import KINDS

from pokayoke import open_store
from pokayoke.stores.base import RecordQuery

TOLD = ("ok", "replayed")
PAGE = 1_000


def verified(trial):
    """Return figures and violations of a finished trial: `{"figures": {...}, "violations": [...]}`."""
    return Verification(trial).result()


class Verification:
    """Holds what the files and the ledger say against each other."""

    def __init__(self, trial):
        self.trial = trial
        ground = Ground(trial.folder)
        self.effects = defaultdict(list)
        self.own = KINDS[trial.configuration].own
        for n, receipt, memo in effects_own.rows(trial.store) if self.own else ground.lines("effects"):
            self.effects[int(n)].append((receipt, memo))
        self.starts = defaultdict(list)
        self.begun = Counter()
        for n, key, attempt, token in ground.lines("starts"):
            self.starts[int(n)].append((key, int(attempt), token))
            self.begun[token] += 1
        self.answers = [(int(n), *rest) for n, *rest in ground.lines("answers")]
        store = open_store(trial.store)
        self.records = dict(_records(store))
        self.late = sum(entry.kind == "late_effect" for entry in _audit(store))
        store.close()
        self.keys = {n: key for n, memo, said, key, *_ in self.answers if key != "-"}
        self.problems = []

    def result(self):
        """Check everything and count."""
        for check in (
            self._at_most_once, self._rows_and_effects, self._told_is_recorded, self._one_answer, self._others_arguments,
            self._attempts, self._refusals_do_nothing, self._nothing_open,
        ):  # fmt: skip
            check()
        return {"figures": self._figures(), "violations": self.problems[:50], "violation_count": len(self.problems)}

    def _record(self, n):
        return self.records.get(self.keys.get(n))

    def _broken(self, rule, n, **what):
        self.problems.append(f"{rule}: key {n}: " + ", ".join(f"{name}={value}" for name, value in what.items()))

    def _at_most_once(self):
        for n, done in self.effects.items():
            if len(done) > 1:
                self._broken("I1 one effect per key", n, effects=done, record=self._record(n))

    def _rows_and_effects(self):
        for n in self.effects:
            if self._record(n) is None:
                self._broken("I8 an effect has a row", n, effects=self.effects[n])
        for n in range(self.trial.keys):
            record = self._record(n)
            if record is None:
                self._broken("I11 every key was asked for", n)
            elif record.state == "completed" and not self.effects[n]:
                self._broken("I9 completed means that it happened", n, record=record)

    def _told_is_recorded(self):
        self.lost = 0
        for n, _, said, *_ in self.answers:
            record = self._record(n)
            if said in TOLD and (record is None or record.state != "completed"):
                self.lost += 1
                self._broken("I2 a success is recorded", n, said=said, record=record)

    def _one_answer(self):
        told = defaultdict(set)
        for n, memo, said, _, _, receipt in self.answers:
            if said in TOLD and memo == "m":
                told[n].add(receipt)
        self.unequal = 0
        for n, receipts in told.items():
            known = {receipt for receipt, _ in self.effects[n]}
            wanted = self._receipt(n)
            if receipts != {wanted}:
                self.unequal += 1
                self._broken("I4 one answer for all", n, told=receipts, recorded=wanted)
            elif wanted != "-" and wanted not in known:
                self._broken("I4 the answer is that of the effect", n, told=receipts, effects=known)

    def _receipt(self, n):
        record = self._record(n)
        if record is None or record.output is None:
            return "-"
        return record.output.decode().split('"')[3]

    def _others_arguments(self):
        for n, memo, said, *_ in self.answers:
            if memo != "m" and said not in ("conflict", "store_unavailable"):
                self._broken("I5 other arguments conflict", n, said=said)
        for n, done in self.effects.items():
            if any(memo != "m" for _, memo in done):
                self._broken("I5 other arguments never execute", n, effects=done)

    def _attempts(self):
        for n, started in self.starts.items():
            attempts = [attempt for _, attempt, _ in started]
            record = self._record(n)
            if len(set(attempts)) != len(attempts) or (record is not None and max(attempts) > record.attempt):
                self._broken("I7 every execution has an attempt of its own", n, attempts=attempts, record=record)

    def _refusals_do_nothing(self):
        for n, _, said, _, token, _ in self.answers:
            if said in ("in_progress", "conflict", "store_unavailable") and self.begun[token]:
                self._broken("I10 a refusal starts nothing", n, said=said, token=token)

    def _nothing_open(self):
        allowed = {"completed", "in_doubt"}
        for n in range(self.trial.keys):
            record = self._record(n)
            if record is not None and record.state not in allowed:
                self._broken("I11 nothing stays open", n, state=record.state)
            if self.own and self.effects[n] and record.state != "completed":
                self._broken("its own transaction is exact", n, record=record)
            if record is not None and record.state == "in_doubt" and self.trial.configuration != "human":
                self._broken("every doubt is resolved", n, record=record)

    def _figures(self):
        answered = {token for *_, token, _ in self.answers}
        states = Counter(record.state for record in self.records.values())
        hung = sum(said == "in_doubt" for _, _, said, *_ in self.answers)
        return {
            "configuration": self.trial.configuration,
            "store": self.trial.store.partition(":")[0],
            "workers": self.trial.workers,
            "keys": self.trial.keys,
            "calls": len(self.answers),
            "executions": sum(self.begun.values()),
            "cut executions": sum(count for token, count in self.begun.items() if token not in answered),
            "effects": sum(map(len, self.effects.values())),
            "double": sum(len(done) > 1 for done in self.effects.values()),
            "completed": states["completed"],
            "in doubt": states["in_doubt"],
            "doubts that happened": sum(
                self._record(n) is not None and self._record(n).state == "in_doubt" for n in self.effects if self.effects[n]
            ),
            "told in doubt": hung,
            "late effects": self.late,
            "lost": self.lost,
            "unequal": self.unequal,
        }  # fmt: skip


def _records(store):
    """Every record with its output, by key."""
    after = None
    while page := store.records(RecordQuery(after=after, limit=PAGE)):
        for listed in page:
            yield listed.key, store.record(listed.key)
        after = page[-1].key


def _audit(store):
    after = 0
    while page := store.audit(after=after, limit=PAGE):
        yield from page
        after = page[-1].number
