"""A client with many torrents of one tracker: announces them all, and ends when the tracker has answered for each.

Usage: many_torrents.py URL COUNT
"""

import hashlib
import os
import sys
import tempfile
import time

import libtorrent

TIMEOUT_S = 50


def main(url, count):
    session = libtorrent.session(
        {
            "enable_dht": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            # There is no internet here, so no server can be asked for the address.
            "webtorrent_stun_server": "",
            # Each offer costs a client a socket, and no other client is here to answer it.
            "max_webtorrent_offers": 1,
            "alert_mask": libtorrent.alert.category_t.tracker_notification,
            "alert_queue_size": 100 * count,
            # All torrents announce, not only those that may download at the same time.
            "active_limit": count,
            "active_downloads": count,
            "active_tracker_limit": count,
            "auto_manage_startup": 1,
        }
    )
    with tempfile.TemporaryDirectory() as directory:
        for number in range(count):
            share(session, url, number, directory)
        answered = wait(session, count)
    print(f"{len(answered)} of {count} torrents are answered", flush=True)
    # Without the session's wait for the replies to "stopped". The tracker notices the end of the connection.
    os._exit(0 if len(answered) == count else 1)


def share(session, url, number, directory):
    """Adds a torrent of which only the info hash is known."""
    parameters = libtorrent.add_torrent_params()
    info_hash = hashlib.sha1(f"torrent {number}".encode()).digest()
    parameters.info_hashes = libtorrent.info_hash_t(libtorrent.sha1_hash(info_hash))
    parameters.trackers = [url]
    parameters.save_path = directory
    parameters.flags &= ~(libtorrent.torrent_flags.auto_managed | libtorrent.torrent_flags.paused)
    session.add_torrent(parameters)


def wait(session, count):
    """Returns the torrents for which the tracker has answered, once these are all or the time is up."""
    answered, deadline = set(), time.monotonic() + TIMEOUT_S
    while len(answered) < count and time.monotonic() < deadline:
        session.wait_for_alert(200)
        for alert in session.pop_alerts():
            if isinstance(alert, libtorrent.tracker_reply_alert):
                answered.add(str(alert.handle.info_hashes().v1))
            elif isinstance(alert, libtorrent.tracker_error_alert):
                print(alert.message(), flush=True)
    return answered


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
