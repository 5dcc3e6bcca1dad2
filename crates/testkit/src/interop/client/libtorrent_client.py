"""A minimal BitTorrent client: shares one torrent until it is told to quit (SIGINT or SIGTERM), and announces at once on
SIGUSR1.

Usage: libtorrent_client.py TORRENT DIRECTORY PORT
"""

import collections
import signal
import sys
import time

import libtorrent

CATEGORIES = libtorrent.alert.category_t
ALERTS = (
    CATEGORIES.connect_notification
    | CATEGORIES.error_notification
    | CATEGORIES.status_notification
    | CATEGORIES.tracker_notification
)
QUIT_SIGNALS = (signal.SIGINT, signal.SIGTERM)
REANNOUNCE_SIGNAL = signal.SIGUSR1
SIGNALS = (*QUIT_SIGNALS, REANNOUNCE_SIGNAL)
LEAVE_S_MAX = 10


def main(torrent, directory, port):
    # Signals are waited for instead of handled, because a handler could interrupt a thread that holds the lock it needs.
    # They are blocked before any thread starts, since threads inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    session = libtorrent.session(
        {
            "listen_interfaces": f"0.0.0.0:{port},[::]:{port}",
            "enable_dht": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            # There is no internet here, so no server can be asked for the address.
            "webtorrent_stun_server": "",
            "announce_to_all_tiers": True,
            "alert_mask": ALERTS,
        }
    )
    share(session, torrent, directory)
    announces = Announces(session)
    while True:
        announces.follow()
        received = signal.sigtimedwait(SIGNALS, 0.1)
        if received is None:
            continue
        if received.si_signo != REANNOUNCE_SIGNAL:
            break
        for shared in session.get_torrents():
            shared.force_reannounce(0, -1, libtorrent.reannounce_flags_t.ignore_min_interval)
    leave(session, announces)


def share(session, torrent, directory):
    parameters = libtorrent.add_torrent_params()
    parameters.ti = libtorrent.torrent_info(torrent)
    parameters.save_path = directory
    parameters.flags |= libtorrent.torrent_flags.disable_pex
    session.add_torrent(parameters)


def leave(session, announces):
    """Leaves the swarm and waits until the tracker has confirmed it."""
    session.pause()
    deadline = time.monotonic() + LEAVE_S_MAX
    while not announces.all_done() and time.monotonic() < deadline:
        time.sleep(0.1)
        announces.follow()


class Announces:
    """Tracks announces by the alerts of the session, and prints the alerts. Each address announces separately."""

    def __init__(self, session):
        self.session = session
        self.unanswered = collections.Counter()
        self.stopped = set()

    def follow(self):
        for alert in self.session.pop_alerts():
            print(f"{type(alert).__name__}: {alert.message()}", flush=True)
            if isinstance(alert, libtorrent.tracker_announce_alert):
                self.unanswered[alert.local_endpoint] += 1
                if alert.event == libtorrent.event_t.stopped:
                    self.stopped.add(alert.local_endpoint)
            elif isinstance(alert, (libtorrent.tracker_reply_alert, libtorrent.tracker_error_alert)):
                self.unanswered[alert.local_endpoint] -= 1

    def all_done(self):
        """Returns whether the last announces are sent, and the tracker has answered them and all earlier ones."""
        return self.stopped and not any(self.unanswered[address] for address in self.stopped)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
