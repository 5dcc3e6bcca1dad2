//! Headers in which proxies name the client. An input is one or more fields, a line each.

use core::net::IpAddr;

use shoal_wire::http::forwarded::{HOPS_MAX, NoAddress, address, forwarded, x_forwarded_for};
use shoal_wire::http::head::HEAD_BYTES_MAX;

/// The address that a proxy appends, and which nothing before it may hide.
const APPENDED: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 77));

/// Reads the lines as every kind of field.
///
/// # Panics
/// Where something does not hold.
pub fn http_forwarded(input: &[u8]) {
    // A longer one never comes, because it stands within a head.
    if input.len() > HEAD_BYTES_MAX {
        return;
    }
    let lines = || input.split(|&byte| byte == b'\n');
    for line in lines() {
        if let Ok(ip) = address(line) {
            assert_eq!(ip, ip.to_canonical());
            assert_eq!(address(ip.to_string().as_bytes()), Ok(ip));
            assert_eq!(x_forwarded_for([line].into_iter()).collect::<Vec<_>>(), [Ok(ip)]);
        }
    }
    check_hops(&x_forwarded_for(lines()).collect::<Vec<_>>());
    check_hops(&forwarded(lines()).collect::<Vec<_>>());

    let list = [input, b", 192.0.2.77"].concat();
    assert_eq!(x_forwarded_for([&list[..]].into_iter()).next(), Some(Ok(APPENDED)));
    let elements = [input, b", for=192.0.2.77"].concat();
    match forwarded([&elements[..]].into_iter()).next() {
        Some(Err(NoAddress::Malformed)) => {}
        hop => assert_eq!(hop, Some(Ok(APPENDED)), "nothing can be put behind what a proxy appends"),
    }
}

fn check_hops(hops: &[Result<IpAddr, NoAddress>]) {
    assert!(hops.len() <= HOPS_MAX + 1);
    let cut = hops.iter().position(|hop| *hop == Err(NoAddress::TooManyHops));
    assert!(cut.is_none_or(|hop| hop == HOPS_MAX));
    assert_eq!(hops.len() > HOPS_MAX, cut.is_some());
}
