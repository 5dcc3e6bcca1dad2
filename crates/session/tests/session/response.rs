//! Reads responses as a client does, without the codecs of the tracker.

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether the body is one bencoded dictionary, judged by its ends.
    pub(crate) fn is_bencoded(&self) -> bool {
        self.body.starts_with(b"d") && self.body.ends_with(b"e")
    }

    pub(crate) fn is_failure(&self) -> bool {
        self.is_bencoded() && self.body.starts_with(b"d14:failure reason")
    }
}

/// Returns all responses in `bytes`, which must end with the last of them.
pub(crate) fn parse_all(mut bytes: &[u8], is_closed: bool) -> Vec<Response> {
    let mut responses = Vec::new();
    while !bytes.is_empty() {
        let (response, rest) = parse(bytes, is_closed);
        responses.push(response);
        bytes = rest;
    }
    responses
}

/// Returns the head at the beginning of `bytes`, and the rest.
pub(crate) fn parse_head(bytes: &[u8]) -> (Response, &[u8]) {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a whole head");
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().strip_prefix("HTTP/1.1 ").expect("a status line");
    let status = status.split_once(' ').unwrap().0.parse().unwrap();
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    (Response { status, fields: lines.map(field).collect(), body: Vec::new() }, &bytes[end + 4..])
}

fn parse(bytes: &[u8], is_closed: bool) -> (Response, &[u8]) {
    let (mut response, rest) = parse_head(bytes);
    let length = response.field("content-length").map(|length| length.parse().unwrap());
    let (body, rest) = match (response.field("transfer-encoding"), length) {
        (Some("chunked"), None) => dechunk(rest),
        (None, Some(length)) => {
            let (body, rest) = rest.split_at(length);
            (body.to_vec(), rest)
        }
        (None, None) if is_closed => (rest.to_vec(), &[][..]),
        framing => panic!("no framing: {framing:?}"),
    };
    response.body = body;
    (response, rest)
}

fn dechunk(mut bytes: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n").expect("the size of a chunk");
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let (data, rest) = bytes[end + 2..].split_at(size);
        body.extend_from_slice(data);
        bytes = rest.strip_prefix(b"\r\n").expect("the end of a chunk");
        if size == 0 {
            return (body, bytes);
        }
    }
}
