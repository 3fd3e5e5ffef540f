"""Texts of every kind an agent's history holds, made here and the same on every machine, with their o200k counts."""

import base64
import hashlib
import json


def noise(label, size):
    """Return bytes without a pattern, the same on every machine."""
    blocks = (hashlib.sha256(f"{label}{i}".encode()).digest() for i in range(size // 32 + 1))
    return b"".join(blocks)[:size]


def uuid(label):
    """Return a UUID made of noise."""
    h = noise(label, 16).hex()
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:32]}"


ENGLISH = """The warehouse in Leeds closes at six on Fridays, so any parcel that arrives later waits until Monday morning. Before you promise a customer a delivery date, look at the carrier's calendar and add one working day for customs if the address is outside the country. When two orders share an address they may travel together, but only if neither of them is marked fragile; nobody wants to explain a broken teapot twice. If the weather turns bad, the dispatcher decides, and her word is final.
"""
GERMAN = """Das Lager in Lübeck schließt freitags um sechs, deshalb bleiben spätere Pakete bis Montagmorgen liegen. Bevor du einem Kunden einen Liefertermin zusagst, prüfe bitte den Kalender des Spediteurs und rechne für die Zollabfertigung einen zusätzlichen Werktag ein. Zwei Bestellungen an dieselbe Anschrift dürfen gemeinsam verschickt werden, sofern keine als zerbrechlich gekennzeichnet ist. Über Ausnahmen entscheidet die Bereichsleiterin.
"""
CHINESE = """利兹的仓库每周五下午六点关门，所以晚到的包裹要等到星期一早上才能处理。在向客户承诺送货日期之前，请先查看承运商的日历；如果收货地址在国外，还要为清关多留一个工作日。两个订单的地址相同时可以一起发货，但前提是都没有标记为易碎品。遇到恶劣天气时，由调度员决定是否发车，她的决定就是最终结果。
"""
JAPANESE = """リーズの倉庫は金曜日の六時に閉まるので、それより遅く届いた荷物は月曜日の朝まで待つことになります。お客様に配達日を約束する前に、運送会社のカレンダーを確認してください。住所が国外の場合は、通関のためにもう一営業日を加えます。
"""
KOREAN = """리즈 창고는 금요일 여섯 시에 문을 닫기 때문에 그 이후에 도착한 소포는 월요일 아침까지 기다려야 합니다. 고객에게 배송 날짜를 약속하기 전에 운송업체의 달력을 확인하고 해외 주소라면 통관을 위해 하루를 더하십시오.
"""
RUSSIAN = """Склад в Лидсе закрывается по пятницам в шесть часов, поэтому опоздавшие посылки ждут до утра понедельника. Прежде чем обещать клиенту дату доставки, проверьте календарь перевозчика и добавьте один рабочий день на таможню.
"""
ARABIC = """يغلق المستودع في ليدز أبوابه عند السادسة مساء كل يوم جمعة، ولذلك تنتظر الطرود المتأخرة حتى صباح الاثنين. قبل أن تعد العميل بموعد التسليم راجع تقويم شركة النقل وأضف يوم عمل واحدا للجمارك.
"""
HINDI = """लीड्स का गोदाम शुक्रवार को छह बजे बंद हो जाता है, इसलिए देर से आने वाले पार्सल सोमवार की सुबह तक रुकते हैं। ग्राहक को तारीख बताने से पहले परिवहन कंपनी का कैलेंडर देखिए।
"""
CODE = '''class Parcel:
    """One parcel on its way to a customer."""

    def __init__(self, weight_kg: float, fragile: bool = False) -> None:
        self.weight_kg = weight_kg
        self.fragile = fragile
        self.stops: list[str] = []

    def move(self, depot: str, *, at: datetime) -> "Parcel":
        if depot in self.stops and not self.allow_return:
            raise ValueError(f"parcel was at {depot!r} before")
        self.stops.append(depot)
        return replace(self, last_seen=at.isoformat(), delay=max(0, len(self.stops) - 3))


for index, row in enumerate(rows[1:], start=2):
    total += int(row["qty"]) * prices.get(row["sku"], 0)
'''
MINIFIED = """!function(e,t){"object"==typeof exports?module.exports=t():e.Parcel=t()}(this,function(){var n={},r=0;function o(e){return n[e]||(n[e]={id:r++,w:0,s:[]})}return{add:function(e,t){var i=o(e);return i.w+=t,i.s.push(+new Date),i},sum:function(){var e=0;for(var t in n)n.hasOwnProperty(t)&&(e+=n[t].w);return e}}});"""


def args(i):
    """Return the arguments of an order as JSON."""
    return json.dumps(
        {
            "order_id": f"ORD-{20260000 + i * 37}",
            "sku": f"TP-{i * 7919 % 9973:04d}-XL",
            "quantity": i % 9 + 1,
            "unit_price": round(3.5 + i * 1.17, 2),
            "currency": "EUR",
            "ship_to": {"city": "Lyon", "zip": f"{69000 + i}", "street": f"{i + 3} rue des Fleurs"},
            "gift": i % 2 == 0,
            "tags": ["fragile", "spring"],
        }
    )


def outputs(n):
    """Return a list of orders as compact JSON."""
    return json.dumps(
        {
            "ok": True,
            "items": [
                {
                    "id": uuid(f"o{i}")[:8],
                    "status": ["open", "paid", "sent"][i % 3],
                    "created_at": f"2026-03-{i % 28 + 1:02d}T{i % 24:02d}:15:{i * 7 % 60:02d}Z",
                    "total_cents": i * 1234567 % 99991,
                    "customer": {"name": "Ada Marsh", "email": f"user{i}@example.org"},
                    "lat": 53.79 + i / 1000,
                    "notes": None,
                }
                for i in range(n)
            ],
        },
        separators=(",", ":"),
    )


HTML = """<div class="card mb-3" id="order-417"><div class="card-header d-flex justify-content-between"><h5 class="title">Order 417</h5><span class="badge bg-success">paid</span></div><ul class="list-group list-group-flush"><li class="list-group-item"><a href="/orders/417?tab=items&amp;page=2" data-toggle="tooltip">Teapot, blue</a> <em>2 &times; 14,90&nbsp;&euro;</em></li><li class="list-group-item"><img src="/static/img/tp-0417.png" alt="" width="48" height="48"></li></ul></div>
"""
LOG = "".join(
    f"2026-03-{i % 28 + 1:02d} 08:{i % 60:02d}:17,{i * 37 % 1000:03d} INFO  [worker-{i % 7}] depot.router: routed parcel={i * 7919 % 99991} via=LDS hops={i % 5} took={i * 1.37 % 90:.2f}ms\n"
    for i in range(40)
)
CSV = "id,date,sku,qty,price,total\n" + "".join(
    f"{i + 1000},2026-03-{i % 28 + 1:02d},TP-{i * 7919 % 9973:04d},{i % 9 + 1},{3.5 + i * 1.17:.2f},{(i % 9 + 1) * (3.5 + i * 1.17):.2f}\n"
    for i in range(60)
)
MARKDOWN = """# Returns

| Reason | Who pays | Days |
|---|---|---|
| Broken on arrival | **We** | 30 |
| Changed mind | Customer | 14 |

1. Ask for a photo of the damage.
2. Create a label with `create_label(order_id)`.
3. Tell the customer *when* the refund arrives.

> Never promise a refund before the parcel is scanned.
"""
B = base64.b64encode(noise("b", 1500)).decode()
SAMPLES = {
    "English": ENGLISH * 5,
    "German": GERMAN * 5,
    "code": CODE * 3,
    "JSON args": "\n".join(args(i) for i in range(10)),
    "JSON output": outputs(12),
    "HTML": HTML * 4,
    "Chinese": CHINESE * 6,
    "digits": "".join(str(b % 10) for b in noise("d", 2000)),
    "UUIDs": "\n".join(uuid(f"u{i}") for i in range(50)),
    "base64": B,
    "Japanese": JAPANESE * 6,
    "Korean": KOREAN * 6,
    "Russian": RUSSIAN * 6,
    "Arabic": ARABIC * 6,
    "Hindi": HINDI * 6,
    "minified": MINIFIED * 4,
    "log": LOG,
    "CSV": CSV,
    "Markdown": MARKDOWN * 4,
    "hex": noise("h", 900).hex(),
    "HEX": noise("h", 900).hex().upper(),
    "base64url": base64.urlsafe_b64encode(noise("bu", 1200)).decode(),
    "base32": base64.b32encode(noise("b32", 900)).decode(),
    "lower letters": "".join(chr(97 + b % 26) for b in noise("l", 1500)),
    "emoji": "🚚📦✅🎉🙂👍🏽❤️🔥🧾🇫🇷" * 30,
    "capitals": ENGLISH.upper() * 4,
    "spaced digits": " ".join(str(int.from_bytes(noise(f"n{i}", 2), "big")) for i in range(300)),
    "floats": json.dumps([int.from_bytes(noise(f"f{i}", 6), "big") / 2**48 for i in range(120)]),
    "pretty JSON": json.dumps(json.loads(outputs(8)), indent=4),
    "paths": "\n".join(
        f"src/pkg_{i % 5}/module_{i % 9}/test_{['alpha', 'beta', 'gamma'][i % 3]}_{i}.py" for i in range(60)
    ),
    "escapes": json.dumps(CHINESE * 2),
    "French": "Le dépôt ferme à dix-huit heures le vendredi; les colis arrivés plus tard attendent jusqu'au lundi matin. Avant de promettre une date, vérifiez le calendrier du transporteur et ajoutez un jour ouvré pour la douane.\n"
    * 8,
    "Finnish": "Varasto sulkeutuu perjantaisin kello kuusi, joten myöhästyneet paketit odottavat maanantaiaamuun. Tarkista kuljetusliikkeen kalenteri ennen kuin lupaat asiakkaalle toimituspäivän, ja lisää yksi työpäivä tullausta varten.\n"
    * 8,
    "Polish": "Magazyn zamyka się w piątki o szóstej, więc spóźnione paczki czekają do poniedziałku rano. Zanim obiecasz klientowi termin dostawy, sprawdź kalendarz przewoźnika i dolicz jeden dzień roboczy na odprawę celną.\n"
    * 8,
    "shell": "$ ls -la /srv/depot\ntotal 48\ndrwxr-xr-x 5 ops ops 4096 Mar  3 09:12 .\n-rw-r--r-- 1 ops ops 1873 Mar  2 17:40 routes.yaml\n-rwxr-xr-x 1 ops ops  412 Feb 27 11:05 run.sh\n"
    * 10,
    "XML": '<order id="417"><line sku="TP-0417" qty="2"><price currency="EUR">14.90</price></line><shipTo><name>Ada Marsh</name><zip>69003</zip></shipTo></order>\n'
    * 12,
    "SQL": "SELECT o.id, o.total_cents, c.email FROM orders AS o JOIN customers c ON c.id = o.customer_id WHERE o.status = 'paid' AND o.created_at >= '2026-03-01' ORDER BY o.id DESC LIMIT 50;\n"
    * 10,
    "jwt": ".".join(
        base64.urlsafe_b64encode(x).decode().rstrip("=")
        for x in (b'{"alg":"RS256","typ":"JWT"}', noise("j1", 180), noise("j2", 256))
    ),
}

# Counted once with a real o200k tokenizer; a changed sample needs a new count.
COUNTS = {
    "English": 490,
    "German": 485,
    "code": 534,
    "JSON args": 861,
    "JSON output": 736,
    "HTML": 604,
    "Chinese": 666,
    "digits": 667,
    "UUIDs": 1153,
    "base64": 1403,
    "Japanese": 480,
    "Korean": 402,
    "Russian": 372,
    "Arabic": 354,
    "Hindi": 306,
    "minified": 440,
    "log": 1678,
    "CSV": 1510,
    "Markdown": 340,
    "hex": 1017,
    "HEX": 1037,
    "base64url": 1068,
    "base32": 940,
    "lower letters": 778,
    "emoji": 600,
    "capitals": 548,
    "spaced digits": 896,
    "floats": 1195,
    "pretty JSON": 748,
    "paths": 779,
    "escapes": 1004,
    "French": 400,
    "Finnish": 504,
    "Polish": 576,
    "shell": 820,
    "XML": 636,
    "SQL": 540,
    "jwt": 425,
}
