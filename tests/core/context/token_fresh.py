"""More texts of the kinds that fill an agent's history, on which the weights of the estimate were never tried.

Two or three of each kind, of other subjects and makers than in `token_samples`; the counts are true ones
(`python -m tools.tokens FOLDER`).
"""

import base64
import json
import random
import uuid

_RNG = random.Random(20260314)


def _id(prefix):
    return f"{prefix}{_RNG.randrange(10**9):09d}"


def _uuid():
    return str(uuid.UUID(int=_RNG.getrandbits(128), version=4))


_TICKET = (
    "Hi team, I ordered a standing desk three weeks ago and the left motor makes a grinding noise whenever it passes "
    "eighty centimetres. Your chat assistant asked me to film it, which I did, but the upload form rejected the clip "
    "because it was too large. Could somebody call me back after four? I would rather have it repaired than replaced, "
    "since assembling the thing took my husband and me a whole afternoon.\n"
)
_MINUTES = (
    "The committee met in the small library. After some discussion the treasurer proposed that the remaining funds be "
    "spent on heating, and everybody except the secretary agreed. It was noted, not for the first time, that the roof "
    "over the reading room leaks when the wind comes from the north.\n"
)
_BERICHT = (
    "Sehr geehrte Frau Oberhuber, vielen Dank für Ihre Rückmeldung zur Heizungsanlage. Unser Techniker hat festgestellt, "
    "dass der Druckausgleichsbehälter ausgetauscht werden muss; die Kosten übernimmt selbstverständlich die "
    "Gewährleistung. Bitte teilen Sie uns mit, ob Ihnen ein Termin am übernächsten Donnerstagvormittag passt.\n"
)
_PYTHON = '''async def drain(queue: asyncio.Queue[Job], *, limit: int = 50) -> list[Result]:
    """Take jobs until the queue is empty or the limit is reached."""
    results: list[Result] = []
    while not queue.empty() and len(results) < limit:
        job = await queue.get()
        try:
            results.append(await job.run(timeout=settings.TIMEOUT_SECONDS))
        except (TimeoutError, ConnectionResetError) as exc:
            logger.warning("job %s failed: %r", job.id, exc)
            await queue.put(job.retry(delay=2 ** job.attempts))
        finally:
            queue.task_done()
    return results
'''
_TYPESCRIPT = """export const useInvoices = (customerId: string | undefined) => {
  const [state, setState] = useState<LoadState<Invoice[]>>({ kind: "idle" });
  useEffect(() => {
    if (!customerId) return;
    const controller = new AbortController();
    fetch(`/api/v2/customers/${customerId}/invoices?status=open`, { signal: controller.signal })
      .then((res) => (res.ok ? res.json() : Promise.reject(new HttpError(res.status))))
      .then((items) => setState({ kind: "done", items }))
      .catch((error) => error.name !== "AbortError" && setState({ kind: "failed", error }));
    return () => controller.abort();
  }, [customerId]);
  return state;
};
"""
_GO = """func (s *Store) Claim(ctx context.Context, key string, ttl time.Duration) (Lease, error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return Lease{}, fmt.Errorf("claim %q: %w", key, err)
	}
	defer tx.Rollback()
	row := tx.QueryRowContext(ctx, `SELECT owner, expires FROM leases WHERE key = $1 FOR UPDATE`, key)
	var l Lease
	if err := row.Scan(&l.Owner, &l.Expires); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Lease{}, err
	}
	return l, tx.Commit()
}
"""


def _flight(_):
    return {
        "origin": _RNG.choice(["LHR", "ZRH", "JFK", "NRT"]),
        "destination": _RNG.choice(["CDG", "SFO", "GRU", "SIN"]),
        "departure_date": f"2026-{_RNG.randint(1, 12):02d}-{_RNG.randint(1, 28):02d}",
        "passengers": [{"type": "adult", "count": _RNG.randint(1, 4)}, {"type": "child", "count": 0}],
        "cabin": "premium_economy",
        "max_price": round(_RNG.uniform(99, 2400), 2),
        "flexible": _RNG.random() < 0.5,
    }


def _edit(_):
    return {
        "path": f"src/services/{_RNG.choice(['billing', 'auth', 'search'])}/handler_{_RNG.randint(1, 40)}.py",
        "old_string": "    return None\n",
        "new_string": "    raise LookupError(key)\n",
        "replace_all": False,
        "expected_replacements": _RNG.randint(1, 9),
    }


def _row(_):
    return {
        "uuid": _uuid(),
        "sku": _id("SKU-"),
        "qty": _RNG.randint(0, 500),
        "warehouse": _RNG.choice(["north", "south"]),
        "updated_at": f"2026-05-{_RNG.randint(1, 28):02d}T{_RNG.randint(0, 23):02d}:{_RNG.randint(0, 59):02d}:00.{_RNG.randint(0, 999):03d}+00:00",
        "price": {"amount": f"{_RNG.uniform(1, 900):.2f}", "currency": "CHF"},
        "tags": _RNG.sample(["fragile", "cold", "bulk", "returns", "gift"], 2),
    }


def _issue(number):
    return {
        "number": 4000 + number,
        "title": f"Crash when saving profile {number}",
        "state": _RNG.choice(["open", "closed"]),
        "user": {"login": f"dev-{_RNG.randint(1, 999)}", "id": _RNG.randint(10**6, 10**8), "site_admin": False},
        "labels": [{"name": "bug", "color": "d73a4a"}],
        "comments": _RNG.randint(0, 60),
        "html_url": f"https://git.example.org/acme/app/issues/{4000 + number}",
        "body": None,
    }


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>502 Bad Gateway</title>
<style>body{font-family:sans-serif;background:#f4f4f4;margin:0}.box{max-width:600px;margin:10% auto;padding:2em}</style>
</head><body><div class="box"><h1>502 Bad Gateway</h1><p>The server returned an invalid or incomplete response.</p>
<p>Reference: <code>18.4f2a1702.1773500000.3c9e21b</code></p></div><script>window.__env={"v":"3.14.2"};</script></body></html>
"""
_TABLE = "<table>" + "".join(
    f'<tr data-row="{n}"><td><a href="/p/{n * 37}">Part {n}</a></td><td class="num">{n * 1.75:.2f}</td><td>&nbsp;</td></tr>'
    for n in range(1, 40)
)
_ZH_MAIL = (
    "您好，我上周在贵店购买的蓝牙耳机右侧没有声音，已经按照说明书重新配对了三次，问题依旧。请问可以换货吗？"
    "我的收货地址不变，白天上班不方便接电话，请尽量用短信联系我，谢谢！\n"
)
_ZH_NEWS = (
    "研究人员在山区发现了一种新的兰花，它只在春季开放，花期不到十天。当地政府表示将设立保护区，并限制游客人数。\n"
)

SAMPLES = {
    "English ticket": _TICKET * 3,
    "English minutes": _MINUTES * 4,
    "German letter": _BERICHT * 3,
    "Python": _PYTHON * 2,
    "TypeScript": _TYPESCRIPT * 2,
    "Go": _GO * 2,
    "JSON args flights": "\n".join(json.dumps(_flight(n)) for n in range(12)),
    "JSON args edits": "\n".join(json.dumps(_edit(n)) for n in range(15)),
    "JSON output stock": json.dumps([_row(n) for n in range(14)], separators=(",", ":")),
    "JSON output issues": json.dumps({"total_count": 14, "items": [_issue(n) for n in range(14)]}),
    "JSON output indented": json.dumps([_issue(n) for n in range(9)], indent=2),
    "HTML error page": _PAGE * 3,
    "HTML table": _TABLE,
    "Chinese mail": _ZH_MAIL * 5,
    "Chinese news": _ZH_NEWS * 6,
    "digits long": "".join(str(_RNG.randrange(10)) for _ in range(2_400)),
    "digits card numbers": "\n".join(f"{_RNG.randrange(10**16):016d}" for _ in range(80)),
    "UUID lines": "\n".join(_uuid() for _ in range(60)),
    "UUID JSON": json.dumps([_uuid() for _ in range(60)]),
    "base64 bytes": base64.b64encode(_RNG.randbytes(1_800)).decode(),
    "base64 wrapped": base64.encodebytes(_RNG.randbytes(1_500)).decode(),
}

COUNTS = {
    "English ticket": 246,
    "English minutes": 228,
    "German letter": 213,
    "Python": 278,
    "TypeScript": 338,
    "Go": 296,
    "JSON args flights": 948,
    "JSON args edits": 757,
    "JSON output stock": 1178,
    "JSON output issues": 1383,
    "JSON output indented": 1118,
    "HTML error page": 459,
    "HTML table": 1652,
    "Chinese mail": 320,
    "Chinese news": 216,
    "digits long": 800,
    "digits card numbers": 559,
    "UUID lines": 1416,
    "UUID JSON": 1476,
    "base64 bytes": 1653,
    "base64 wrapped": 1388,
}
