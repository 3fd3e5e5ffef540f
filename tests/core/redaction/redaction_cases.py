"""A redactor with default rules, and helpers to apply it."""

import orjson
from hypothesis import strategies as st

from pokayoke.core.redaction.redactor import Redactor

REDACTOR = Redactor()


def dumped(value):
    return orjson.dumps(value)


def redacted(value, redactor=REDACTOR, **more):
    return orjson.loads(redactor.redact_payload(dumped(value), **more))


SECRET_NAMES = [
    "password",
    "Password",
    "PASSWORD",
    "userPassword",
    "user_passwd",
    "pass_word",
    "passwort",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "clientSecret",
    "secrets",
    "token",
    "accessToken",
    "access_token",
    "csrf-token",
    "api_key",
    "apiKey",
    "API-KEY",
    "apikey",
    "x-api-key",
    "authorization",
    "Proxy-Authorization",
    "cookie",
    "Set-Cookie",
    "private_key",
    "privateKey",
    "PrivateKeyPem",
    "access_key",
    "secretAccessKey",
    "signing_key",
    "encryptionKey",
    "credentials",
    "db_credential",
    "card_number",
    "cardNumber",
    "card_no",
    "pin",
    "otp",
    "cvv",
    "cvc",
    "ssn",
    "auth",
    "basic_auth",
    "bearer",
    *("pass_phrase", "pass-phrase", "pass_code", "passCode", "pass.word", "pass \t.word", "pass/code"),
    *("pin_code", "pinCode", "pin1", "\npin", "é_PIN", "PINCode", "otp_code", "otpCode", "otp1", "OTP-2"),
    *("cvv2", "cvv_code", "cvc2", "ssn_number", "ssn_last4", "pwd_hash", "pwdHash", "db_pwd_old", "DBPwd", "PWD1"),
    *("authHeader", "auth2", "AUTH2", "x-auth", "api.key", "api/key", "aPiKey", "API  KEY", "access.key"),
    *("private.key", "encryption.key", "signing\u2003key", "card.number", "card--no"),
    *("DB_PASS", "smtpPass", "user.pass", "x-functions-key", "Ocp-Apim-Subscription-Key", "connectionString"),
    *("connection_string", "AZURE_STORAGE_CONNECTION_STRING"),
    "kennwort",
    "contraseña",
    "密码",
    "用户密码",
    "令牌",
    "密钥",
    "口令",
]

SECRETIVE = st.sampled_from([
    *("passw", "密码", "令牌", "口令", "kennwort", "contraseña", "sk-abcdef", "://a", "@", "é" * 30, "ü", "日本", "4111"),
    *("gldt-", "shpss_", "dp.pt.", ".atlasv1.", "pass", "\\u00fc"),
    *("\\u0070", "AKIA0000", "1" * 14, "2" + "0" * 13, "6 ", "-", "PIN", '"', "K", "a", " "),
])  # fmt: skip
