//! Which sites' pages may use the tracker.
//!
//! A browser lets every page connect to every host, and names the site of the page in `Origin` (RFC 6454; RFC 6455,
//! 10.2). These rules keep pages of other sites from using the tracker. They do not keep out other clients, which can
//! send any headers.
//!
//! For WebSockets, the operator lists the sites. HTTP announces are meant for clients other than browsers, but any page
//! can make its visitors send them, by an image or a link, and so add their addresses to swarms. [`is_cross_site`]
//! detects such requests.

use shoal_wire::http::head::RequestHead;

/// Returns whether the browser marks the request as made by a page of another site. Clients other than browsers send
/// none of these fields.
///
/// `Sec-Fetch-Site` (Fetch Metadata) covers requests of every kind, including links and images, and pages can neither
/// set nor remove it. `Sec-Fetch-Mode` is ignored: pages can make requests of every mode, and Node's `fetch` sends the
/// field too. If `Sec-Fetch-Site` is missing, `Origin` decides: browsers before 2023 send it with cross-site requests
/// of scripts, and current ones do if the tracker is contacted without TLS. In these cases, images and links look like
/// any other request.
pub(crate) fn is_cross_site(request: &RequestHead<'_, '_>) -> bool {
    let mut sites = request.header("sec-fetch-site").peekable();
    if sites.peek().is_none() {
        return request.header("origin").any(|origin| !origin.is_empty());
    }
    // "none" stands for a request by the user, who typed the address.
    !sites.all(|site| matches!(site, b"same-origin" | b"same-site" | b"none"))
}

/// The origins that are served. An origin is written as in browsers, `https://example.com` or
/// `https://example.com:8443`. Case is ignored, and so is the default port of the scheme. `null` is the origin of a
/// page without one, such as a local file.
#[derive(Clone, Debug)]
pub struct Origins {
    /// Only these are served, unless the list is empty.
    pub allow: Vec<String>,
    /// These are not served, even if `allow` lists them.
    pub deny: Vec<String>,
    /// Whether clients without an origin are served. All clients other than browsers send none.
    pub missing: bool,
}

impl Default for Origins {
    /// Serves all origins.
    fn default() -> Self {
        Self { allow: Vec::new(), deny: Vec::new(), missing: true }
    }
}

impl Origins {
    /// Returns whether a client with these values of the `Origin` field is served. If there are several origins (RFC
    /// 6454, 7.1 allows a list), each of them must be served.
    pub(crate) fn admit<'l>(&self, values: impl Iterator<Item = &'l [u8]>) -> bool {
        let origins = values.flat_map(|value| value.split(|&byte| byte == b' ')).map(<[u8]>::trim_ascii);
        let mut named = origins.filter(|origin| !origin.is_empty()).peekable();
        if named.peek().is_none() {
            return self.missing;
        }
        named.map(without_default_port).all(|origin| {
            let is_same =
                |listed: &String| without_default_port(listed.as_bytes()).eq_ignore_ascii_case(origin);
            let is_in = |list: &[String]| list.iter().any(is_same);
            !is_in(&self.deny) && (self.allow.is_empty() || is_in(&self.allow))
        })
    }
}

/// RFC 6454, 6.2: the port is written only if it is not the default of the scheme.
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
    fn without_lists_all_origins_are_served() {
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
