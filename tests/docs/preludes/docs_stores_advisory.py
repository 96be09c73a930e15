# needs: postgres
import os

published: list[int] = []
ADDRESSES = {
    "postgresql+advisory://app@db.example/app": os.environ["INTERLOCK_DOCS_POSTGRES"].replace(
        "postgresql:", "postgresql+advisory:"
    )
}


def publish(fence: int) -> None:
    published.append(fence)


def check() -> None:
    assert published
