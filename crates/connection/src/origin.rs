//! Pages of which sites may use the tracker.
//!
//! A browser lets every page connect to every host, and names the page's site in `Origin` (RFC 6454; RFC 6455, 10.2).
//! So this keeps the pages of other people from using the tracker. It does not keep out other clients, which can send any
//! headers.
//!
//! Over WebSockets the operator lists the sites. Announces over HTTP are for clients that are no browsers at all, but any
//! page can have its visitors make them, by an image or a link, and so enter their addresses in swarms: there,
//! [`is_cross_site`] tells.

use shoal_wire::http::head::RequestHead;

/// Whether the browser says that a page of another site has made the request. Other clients send none of these fields.
///
/// `Sec-Fetch-Site` (Fetch Metadata) tells it for requests of every kind, links and images included, and pages can
/// neither set nor remove it. `Sec-Fetch-Mode` is not looked at: every mode is one that pages can make, and Node's `fetch`
/// sends it too. Where it is missing, `Origin` tells: browsers before 2023 send it with requests that scripts make across
/// sites, and so do those of today where the tracker is asked without TLS. Images and links are not to be told from
/// other requests then.
pub(crate) fn is_cross_site(request: &RequestHead<'_, '_>) -> bool {
    let mut sites = request.header("sec-fetch-site").peekable();
    if sites.peek().is_none() {
        return request.header("origin").any(|origin| !origin.is_empty());
    }
    // "none" is what the user has asked for, by typing the address.
    !sites.all(|site| matches!(site, b"same-origin" | b"same-site" | b"none"))
}

/// Which origins are served. An origin is written as browsers write it, `https://example.com` or
/// `https://example.com:8443`; letters of either case are the same, and so is the port that the scheme has anyway.
/// `null` is what a page says that has none, such as a local file.
#[derive(Clone, Debug)]
pub struct Origins {
    /// Only these, unless it is empty.
    pub allow: Vec<String>,
    /// Not these, whatever `allow` says.
    pub deny: Vec<String>,
    /// Whether those are served who name no origin, as all do who are no browsers.
    pub missing: bool,
}

impl Default for Origins {
    /// Everybody.
    fn default() -> Self {
        Self { allow: Vec::new(), deny: Vec::new(), missing: true }
    }
}

impl Origins {
    /// Whether a client is served whose `Origin` fields have these values. Of several origins (RFC 6454, 7.1 has a list
    /// of them), each has to be one that is served.
    pub(crate) fn admit<'l>(&self, values: impl Iterator<Item = &'l [u8]>) -> bool {
        let origins = values.flat_map(|value| value.split(|&byte| byte == b' ')).map(<[u8]>::trim_ascii);
        let mut named = origins.filter(|origin| !origin.is_empty()).peekable();
        if named.peek().is_none() {
            return self.missing;
        }
        named.all(|origin| self.admits(origin))
    }

    fn admits(&self, origin: &[u8]) -> bool {
        let is_in = |list: &[String]| list.iter().any(|listed| is_same(listed.as_bytes(), origin));
        !is_in(&self.deny) && (self.allow.is_empty() || is_in(&self.allow))
    }
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    without_default_port(one).eq_ignore_ascii_case(without_default_port(other))
}

/// RFC 6454, 6.2: the port is written only where it is not the scheme's own.
fn without_default_port(origin: &[u8]) -> &[u8] {
    for (scheme, port) in [(&b"https://"[..], &b":443"[..]), (b"http://", b":80")] {
        let has_scheme = origin.get(..scheme.len()).is_some_and(|front| front.eq_ignore_ascii_case(scheme));
        if has_scheme {
            return origin.strip_suffix(port).unwrap_or(origin);
        }
    }
    origin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(allow: &[&str], deny: &[&str], missing: bool) -> Origins {
        let owned = |list: &[&str]| list.iter().map(|&origin| origin.to_owned()).collect();
        Origins { allow: owned(allow), deny: owned(deny), missing }
    }

    fn admits(origins: &Origins, values: &[&str]) -> bool {
        origins.admit(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn without_lists_everybody_is_served() {
        for values in [&["https://example.com"][..], &["null"], &["junk"], &[], &[""]] {
            assert!(admits(&Origins::default(), values), "{values:?}");
        }
    }

    #[test]
    fn a_list_of_those_allowed_leaves_out_all_others() {
        let origins = origins(&["https://Example.com", "http://localhost:8080"], &[], true);
        for value in
            ["https://example.com", "HTTPS://EXAMPLE.COM", "https://example.com:443", "http://localhost:8080"]
        {
            assert!(admits(&origins, &[value]), "{value}");
        }
        for value in [
            "http://example.com",
            "https://example.com:8443",
            "https://example.com:80",
            "https://www.example.com",
            "https://example.com.evil.example",
            "https://example.com/",
            "http://localhost",
            "null",
            "*",
        ] {
            assert!(!admits(&origins, &[value]), "{value}");
        }
    }

    #[test]
    fn denial_outweighs_allowance() {
        let both = origins(&["https://a.example", "https://b.example"], &["https://B.example:443"], true);
        assert!(admits(&both, &["https://a.example"]));
        assert!(!admits(&both, &["https://b.example"]));
        let denied = origins(&[], &["https://b.example", "null"], true);
        assert!(admits(&denied, &["https://a.example"]));
        assert!(!admits(&denied, &["https://b.example"]));
        assert!(!admits(&denied, &["null"]));
    }

    #[test]
    fn a_missing_origin_is_a_case_of_its_own() {
        for values in [&[][..], &[""], &[" "]] {
            assert!(admits(&origins(&["https://a.example"], &[], true), values));
            assert!(!admits(&origins(&[], &[], false), values));
        }
        assert!(admits(&origins(&[], &[], false), &["https://a.example"]));
    }

    #[test]
    fn of_several_origins_each_has_to_be_served() {
        let origins = origins(&[], &["https://b.example"], true);
        assert!(!admits(&origins, &["https://a.example https://b.example"]));
        assert!(!admits(&origins, &["https://a.example", "https://b.example"]));
        assert!(admits(&origins, &["https://a.example https://c.example"]));
    }
}
