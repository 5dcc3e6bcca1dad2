//! HTTP: the heads and bodies of requests and responses.

pub(crate) mod head;
pub(crate) mod query;
pub(crate) mod reply;
pub(crate) mod response;
