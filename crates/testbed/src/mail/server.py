"""A mail server on loopback for tests: aiosmtpd, which tells what arrives and misbehaves when told so.

It is set up by the first line of its input, in JSON, and ends with its input. Every further line is an order. On its
output it says, a line of JSON each, where it listens, that an order is in force, what it was asked, and what arrived.
"""

import asyncio
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


def tell(**what):
    print(json.dumps(what), flush=True)


class Mood:
    """What the server does at one step of a conversation, if not what is asked: answer otherwise, or never."""

    def __init__(self):
        self.step = None
        self.answer = None

    async def at(self, step, server):
        """Whether the step has been dealt with."""
        if step != self.step:
            return False
        tell(reached=step)
        if self.answer is None:
            await asyncio.Event().wait()
        await server.push(self.answer)
        return True


class Server(SMTP):
    def __init__(self, mood, *args, **settings):
        self.mood = mood
        super().__init__(*args, **settings)

    async def _handle_client(self):
        if await self.mood.at("greeting", self):
            self.transport.close()
            return
        await super()._handle_client()

    async def smtp_EHLO(self, arg):
        if not await self.mood.at("ehlo", self):
            await super().smtp_EHLO(arg)

    async def smtp_AUTH(self, arg):
        if not await self.mood.at("auth", self):
            await super().smtp_AUTH(arg)

    async def smtp_MAIL(self, arg):
        if not await self.mood.at("mail", self):
            await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg):
        if not await self.mood.at("recipient", self):
            await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg):
        if not await self.mood.at("data", self):
            await super().smtp_DATA(arg)

    async def smtp_QUIT(self, arg):
        if not await self.mood.at("quit", self):
            await super().smtp_QUIT(arg)


class Letterbox:
    def __init__(self, mood):
        self.mood = mood

    async def handle_DATA(self, server, session: Session, envelope: Envelope):
        if self.mood.step == "letter":
            tell(reached="letter")
            if self.mood.answer is None:
                await asyncio.Event().wait()
            return self.mood.answer
        letter = email.message_from_bytes(envelope.content, policy=email.policy.default)
        known = session.auth_data
        tell(
            arrived={
                "from": envelope.mail_from,
                "to": envelope.rcpt_tos,
                "hello": session.host_name,
                "secure": session.ssl is not None or server.transport.get_extra_info("sslcontext") is not None,
                "user": known.login.decode() if known else None,
                "headers": [[name, str(value)] for name, value in letter.items()],
                "text": letter.get_content(),
                "raw": envelope.content.decode("utf-8"),
            }
        )
        return "250 2.0.0 kept"


async def main():
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    setup = json.loads(await lines.readline())
    mood = Mood()
    security = setup["security"]
    context = None
    if security != "none":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(setup["certificate"], setup["key"])

    def known(server, session, envelope, mechanism, data):
        fits = isinstance(data, LoginPassword) and [data.login.decode(), data.password.decode()] == setup["user"]
        tell(asked=mechanism)
        return AuthResult(success=fits, handled=False, auth_data=data)

    def server():
        return Server(
            mood,
            Letterbox(mood),
            hostname="mail.example",
            enable_SMTPUTF8=setup["utf8"],
            tls_context=context if security == "starttls" else None,
            require_starttls=security == "starttls",
            auth_required=setup["user"] is not None,
            # It takes TLS from the first byte for none at all.
            auth_require_tls=security == "starttls",
            auth_exclude_mechanism=setup["without"],
            authenticator=known,
        )

    at_once = context if security == "implicit" else None
    listener = await loop.create_server(server, host="127.0.0.1", port=setup["port"], ssl=at_once)
    tell(listening=listener.sockets[0].getsockname()[1])
    while line := await lines.readline():
        order = json.loads(line)
        mood.step, mood.answer = order["step"], order["answer"]
        tell(obeyed=True)


asyncio.run(main())
