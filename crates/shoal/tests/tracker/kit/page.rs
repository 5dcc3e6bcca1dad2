//! The pages of the control listener, fetched with a real request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::kit::harness::{Tracker, eventually};
use crate::kit::web::tcp;

/// An answer.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// The answer to a request without a body.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str) -> Page {
    send(address, format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
}

/// The answer to these bytes.
pub(crate) fn send(address: SocketAddr, bytes: &[u8]) -> Page {
    let mut text = String::new();
    connect(address, bytes).read_to_string(&mut text).expect("it answers and closes the connection");
    parse(&text)
}

/// The head of the answer to these bytes, whose body may have no end.
pub(crate) fn begin(address: SocketAddr, bytes: &[u8]) -> Page {
    let lines = BufReader::new(connect(address, bytes)).lines().map(|line| line.expect("it answers"));
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    parse(&(head.join("\r\n") + "\r\n\r\n"))
}

fn connect(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = tcp(address);
    stream.write_all(bytes).expect("it reads the request");
    stream
}

fn parse(text: &str) -> Page {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not HTTP: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Page { status: status.expect("a status"), head: head.to_lowercase(), body: body.to_owned() }
}

impl Tracker {
    /// The answer to GET. A test that looks again and again asks more often than the listener allows, and waits then.
    pub(crate) fn page(&self, path: &str) -> Page {
        eventually("the control listener answers", || {
            Some(request(self.control, "GET", path)).filter(|page| page.status != 429)
        })
    }

    /// The sum of the series of a metric that have all these labels, each written as `name="value"`.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        let page = self.page("/metrics");
        assert_eq!(page.status, 200, "{page:?}");
        let series = page.body.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, found_labels) = series.split_once('{').unwrap_or((series, ""));
            let wanted = found == name && labels.iter().all(|label| found_labels.contains(label));
            wanted.then(|| value.parse::<u64>().unwrap_or_else(|_| panic!("{line}")))
        });
        let series: Vec<u64> = series.collect();
        assert!(!series.is_empty(), "there is no {name} {labels:?} in\n{}", page.body);
        series.iter().sum()
    }
}
