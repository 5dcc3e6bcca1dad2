//! The price of a node that asks another one for each announce, as it would if no node had all swarms: requests that are
//! collected for a millisecond, and their replies, over three NATS servers.
//!
//! Only the way is measured. The announce itself at the other node would come on top.

use std::collections::VecDeque;
use std::fs;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use rustix::time::{ClockId, clock_gettime};
use shoal_testkit::nats::{Cluster, Options, Server};
use tokio::runtime;
use tokio::time::{MissedTickBehavior, interval};

use super::tracker::now_ms;
use super::{Run, percentile};

/// An announce: the info hash, the peer's address and id, its event, and what tells one from another.
const REQUEST_BYTES: usize = 64;

/// A reply with thirty peers of IPv4.
const REPLY_BYTES: usize = 20 + 30 * 6;

/// For how long requests are collected.
const TURN: Duration = Duration::from_millis(1);

/// Announces of a turn: 50,000 a second.
const REQUESTS: usize = 50;

/// The subject of the node that is asked.
const SUBJECT: &str = "hop";

/// The seconds on the processor of this thread.
fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The same of all threads of the servers.
fn servers_cpu_s(nats: &Cluster) -> f64 {
    let of_server = |server: &Server| {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid().unwrap())).unwrap();
        let of_task = |path: std::path::PathBuf| -> f64 {
            let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0)
        };
        tasks.map(|task| of_task(task.unwrap().path())).sum::<f64>() / 1e9
    };
    nats.servers.iter().map(of_server).sum()
}

pub(crate) fn run(run: &mut Run) {
    let turns = if run.lab.is_some() { 10_000 } else { 20 };
    let nats = Cluster::start(&Options::default()).unwrap();
    let (asked_url, asker_url) = (nats.servers[0].url(), nats.servers[1].url());
    let (ready, is_ready) = channel();
    let asked = thread::spawn(move || on_runtime(answer(asked_url, turns, ready)));
    is_ready.recv().unwrap();
    let before_s = servers_cpu_s(&nats);
    let (asker_s, mut times_ms) = on_runtime(ask(asker_url, turns));
    let servers_s = servers_cpu_s(&nats) - before_s;
    let asked_s = asked.join().unwrap();
    let per_request = |seconds: f64| seconds * 1e9 / (turns * REQUESTS) as f64;
    for (name, seconds) in [("asking", asker_s), ("asked", asked_s), ("servers", servers_s)] {
        run.figures.print(&format!("hop/{name}"), per_request(seconds), "ns per announce");
    }
    run.figures.print("hop/traffic", (REQUEST_BYTES + REPLY_BYTES) as f64, "B per announce");
    run.figures.print("hop/p50", percentile(&mut times_ms, 50), "ms");
    run.figures.print("hop/p99", percentile(&mut times_ms, 99), "ms");
}

fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Replies to so many messages, and returns the seconds on the processor.
async fn answer(url: String, turns: usize, ready: std::sync::mpsc::Sender<()>) -> f64 {
    let client = async_nats::connect(url).await.unwrap();
    let mut requests = client.subscribe(SUBJECT).await.unwrap();
    client.flush().await.unwrap();
    // The servers tell each other of it.
    tokio::time::sleep(Duration::from_millis(500)).await;
    ready.send(()).unwrap();
    let before_s = thread_cpu_s();
    for _ in 0..turns {
        let request = requests.next().await.unwrap();
        let replies = vec![7; request.payload.len() / REQUEST_BYTES * REPLY_BYTES];
        client.publish(request.reply.unwrap(), replies.into()).await.unwrap();
    }
    client.flush().await.unwrap();
    thread_cpu_s() - before_s
}

/// Sends a message each turn, and returns the seconds on the processor and the milliseconds from each to its reply. A
/// request waits for half a turn on average before.
async fn ask(url: String, turns: usize) -> (f64, Vec<f64>) {
    let client = async_nats::connect(url).await.unwrap();
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.unwrap();
    client.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before_s = thread_cpu_s();
    let mut clock = interval(TURN);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut sent, mut waiting, mut times_ms) = (0, VecDeque::new(), Vec::new());
    while times_ms.len() < turns {
        tokio::select! {
            _ = clock.tick(), if sent < turns => {
                sent += 1;
                waiting.push_back(now_ms());
                let requests = Bytes::from(vec![7; REQUESTS * REQUEST_BYTES]);
                client.publish_with_reply(SUBJECT, inbox.clone(), requests).await.unwrap();
            }
            reply = replies.next() => {
                assert_eq!(reply.unwrap().payload.len(), REQUESTS * REPLY_BYTES);
                times_ms.push(now_ms() - waiting.pop_front().unwrap());
            }
        }
    }
    (thread_cpu_s() - before_s, times_ms)
}
