"""A BitTorrent client of a few lines: shares one torrent until it is told to quit (SIGINT or SIGTERM).

Usage: libtorrent_client.py TORRENT DIRECTORY PORT
"""

import signal
import sys
import threading
import time

import libtorrent

CATEGORIES = libtorrent.alert.category_t
ALERTS = (
    CATEGORIES.connect_notification
    | CATEGORIES.error_notification
    | CATEGORIES.status_notification
    | CATEGORIES.tracker_notification
)
GOODBYE_S_MAX = 10


def main(torrent, directory, port):
    quit_asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: quit_asked.set())
    session = libtorrent.session(
        {
            "listen_interfaces": f"0.0.0.0:{port},[::]:{port}",
            "enable_dht": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            "alert_mask": ALERTS,
        }
    )
    share(session, torrent, directory)
    while not quit_asked.wait(0.1):
        show_alerts(session)
    say_goodbye(session)


def share(session, torrent, directory):
    parameters = libtorrent.add_torrent_params()
    parameters.ti = libtorrent.torrent_info(torrent)
    parameters.save_path = directory
    parameters.flags |= libtorrent.torrent_flags.disable_pex
    session.add_torrent(parameters)


def say_goodbye(session):
    """Leaves the swarm, and waits until the tracker has confirmed it."""
    session.pause()
    deadline = time.monotonic() + GOODBYE_S_MAX
    while time.monotonic() < deadline:
        alerts = show_alerts(session)
        if any(isinstance(alert, libtorrent.tracker_reply_alert) for alert in alerts):
            return
        time.sleep(0.1)


def show_alerts(session):
    alerts = session.pop_alerts()
    for alert in alerts:
        print(f"{type(alert).__name__}: {alert.message()}", flush=True)
    return alerts


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
