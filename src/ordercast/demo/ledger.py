"""What a bank does with messages: accounts, fees and interest. Exact arithmetic, so that two ledgers can be compared.

Interest multiplies and fees change what a withdrawal costs: the order of messages shows in the balances, also between
messages of different groups.
"""

import random
from dataclasses import dataclass, field

ACCOUNTS = 20


@dataclass
class Ledger:
    """Balances in cents, and the fee of a withdrawal."""

    fee: int = 10
    balances: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(ACCOUNTS), 100_000))

    def apply(self, order: str) -> None:
        """Carry out an order; what is no order of money changes nothing."""
        match order.split():
            case ["deposit", account, cents]:
                self.balances[int(account)] += int(cents)
            case ["withdraw", account, cents]:
                if self.balances[int(account)] >= int(cents) + self.fee:
                    self.balances[int(account)] -= int(cents) + self.fee
            case ["interest", account, percent]:
                self.balances[int(account)] += self.balances[int(account)] * int(percent) // 100
            case ["fee", cents]:
                self.fee = int(cents)
            case _:
                pass


def orders(site: str, many: int, seed: int) -> list[tuple[str, str]]:
    """Return what a site sends: branches send transactions, development changes fees and ships releases."""
    chance = random.Random(f"{site} {seed}")
    made = []
    for number in range(many):
        if site.startswith("branch"):
            account, kind = chance.randrange(ACCOUNTS), chance.choice(["deposit", "withdraw", "withdraw", "interest"])
            amount = chance.randrange(1, 4) if kind == "interest" else chance.randrange(100, 90_000)
            made.append(("transactions", f"{kind} {account} {amount}"))
        else:
            fee = ("system-tables", f"fee {chance.randrange(0, 5_000)}")
            made.append(chance.choice([fee, fee, ("releases", f"release {number}"), ("audit", f"note {number}")]))
    return made
