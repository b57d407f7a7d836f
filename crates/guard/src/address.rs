//! Which addresses a delivery may connect to: protection against server-side request forgery.
//!
//! The author of a destination URL is not trusted with our network, and a host name may resolve
//! differently at every attempt. [`check_url`] runs when a destination is saved and only catches mistakes
//! early; [`AddressPolicy::check`] runs at every connect and is the protection.
//!
//! IPv4 has a block list (IANA special-purpose ranges, cloud services on public addresses), IPv6 an allow
//! list (`2000::/3` without its special parts). An IPv6 address that embeds a blocked IPv4 address is
//! blocked too. NAT64 with a network-specific prefix (RFC 6052, 2.2) cannot be recognized: such a gateway
//! must itself refuse private addresses.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, PoisonError, RwLock},
};

use ipnet::{IpNet, Ipv4Net};
use surehook_types::redact::{self, MASK};
use url::{Host, Url};

/// Longest accepted URL. Some servers and proxies truncate or refuse longer ones.
pub const URL_BYTES_MAX: usize = 2048;

/// Cloud metadata services, which serve credentials to virtual machines.
///
/// The list is needed for those on public addresses (Azure) and for those in ranges that operators may
/// reasonably allow (CGNAT, unique local).
const METADATA: [IpAddr; 12] = [
    v4([169, 254, 169, 254]),                       // Nearly every cloud.
    v4([169, 254, 170, 2]),                         // AWS, credentials of ECS tasks.
    v4([169, 254, 170, 23]),                        // AWS, credentials of EKS pods.
    v4([100, 100, 100, 200]),                       // Alibaba, inside the CGNAT range.
    v4([168, 63, 129, 16]),                         // Azure, a public address.
    v4([192, 0, 0, 192]),                           // Oracle, older machines.
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]),      // AWS.
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23]),       // AWS, credentials of EKS pods.
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]),       // Google.
    v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]), // Oracle.
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]),        // Scaleway.
    v6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe]),    // OpenStack.
];

/// Link-local ranges. Routers do not forward them, so clouds place their services there.
const LINK_LOCAL: [IpNet; 2] = [
    IpNet::new_assert(v4([169, 254, 0, 0]), 16),
    IpNet::new_assert(v6([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 10),
];

/// Ports of other protocols. A line-based protocol would read an HTTP request as commands, and the kind of
/// failure reveals whether the port is open.
const PORTS_DENIED: [u16; 42] = [
    0, 7, 9, 19, 20, 21, 22, 23, 25, 53, 69, 79, 110, 111, 119, 123, 135, 139, 143, 161, 179, 389,
    445, 465, 514, 587, 636, 993, 995, 1433, 1521, 2049, 3306, 3389, 5432, 5672, 5900, 6379, 6667,
    9042, 11211, 27017,
];

const fn v4(octets: [u8; 4]) -> IpAddr {
    let [a, b, c, d] = octets;
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(segments: [u16; 8]) -> IpAddr {
    let [a, b, c, d, e, f, g, h] = segments;
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

/// The address under which limits per address count a client: an IPv4 address itself, for IPv6 the
/// /64 network. A single subscriber has a whole /64 and could use a new address for every connection.
pub const fn address_bucket(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// An address that must not be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is not allowed ({kind})")]
pub struct BlockedAddress {
    /// Canonical form: an IPv4-mapped IPv6 address is shown as IPv4.
    pub address: IpAddr,
    /// Kind of the address, or of the IPv4 address that it embeds.
    pub kind: &'static str,
}

/// Allows public addresses and the networks on the operator's allow list.
#[derive(Debug, Default)]
pub struct AddressPolicy {
    allow: RwLock<Arc<[IpNet]>>,
}

impl AddressPolicy {
    /// Allows the networks in `allow` in addition to public addresses.
    ///
    /// Link-local and cloud metadata addresses stay blocked even if a network in `allow` contains them,
    /// unless that network lies within the link-local range or is exactly that metadata address: an
    /// operator who allows `0.0.0.0/0` or `fd00::/8` does not mean them.
    ///
    /// An IPv4 network also allows its IPv4-mapped IPv6 form, and no other form.
    pub fn new(allow: Vec<IpNet>) -> Self {
        Self { allow: RwLock::new(allow.into_iter().map(canonical_net).collect()) }
    }

    /// Takes over the allow list of `other`, for every connection from now on. Open connections stay.
    pub fn replace(&self, other: &Self) {
        *self.allow.write().unwrap_or_else(PoisonError::into_inner) = other.allow_list();
    }

    fn allow_list(&self) -> Arc<[IpNet]> {
        Arc::clone(&self.allow.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn check(&self, ip: IpAddr) -> Result<(), BlockedAddress> {
        let address = ip.to_canonical();
        match special_kind(address) {
            Some(kind) if !self.is_on_allow_list(address) => Err(BlockedAddress { address, kind }),
            Some(_) | None => Ok(()),
        }
    }

    /// Checks the host of a URL without resolving it: a name always passes, because only the resolved
    /// addresses can be checked.
    pub fn check_host<S>(&self, host: &Host<S>) -> Result<(), BlockedAddress> {
        match host {
            Host::Domain(_) => Ok(()),
            Host::Ipv4(ip) => self.check(IpAddr::V4(*ip)),
            Host::Ipv6(ip) => self.check(IpAddr::V6(*ip)),
        }
    }

    fn is_on_allow_list(&self, address: IpAddr) -> bool {
        self.allow_list().iter().any(|net| {
            net.contains(&address)
                && with_embedded(address).all(|address| covers_on_purpose(*net, address))
        })
    }
}

/// The address itself and the IPv4 addresses that a gateway may extract from it.
fn with_embedded(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let embedded = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(embedded_v4(v6)),
    };
    std::iter::once(address).chain(embedded.into_iter().flatten().map(IpAddr::V4))
}

/// Whether `net` allows `address` on purpose. False only for link-local and metadata addresses inside a
/// larger range.
fn covers_on_purpose(net: IpNet, address: IpAddr) -> bool {
    match LINK_LOCAL.iter().find(|range| range.contains(&address)) {
        Some(range) => range.contains(&net),
        None => !METADATA.contains(&address) || net == IpNet::from(address),
    }
}

/// Converts a network inside `::ffff:0:0/96` to IPv4, the form in which addresses are compared.
fn canonical_net(net: IpNet) -> IpNet {
    const MAPPED_PREFIX_LEN: u8 = 96;
    let IpNet::V6(v6) = net else { return net };
    match (v6.network().to_ipv4_mapped(), v6.prefix_len().checked_sub(MAPPED_PREFIX_LEN)) {
        (Some(ip), Some(prefix_len)) => Ipv4Net::new(ip, prefix_len).map_or(net, IpNet::V4),
        (Some(_) | None, Some(_) | None) => net,
    }
}

/// The kind of a special address; `None` for an ordinary public address.
fn special_kind(address: IpAddr) -> Option<&'static str> {
    if METADATA.contains(&address) {
        return Some("cloud metadata");
    }
    match address {
        IpAddr::V4(v4) => special_kind_v4(v4),
        IpAddr::V6(v6) => special_kind_v6(v6),
    }
}

/// The complete IANA IPv4 Special-Purpose Address Registry. Some entries are globally reachable (AS112,
/// AMT), but none serves webhooks.
fn special_kind_v4(ip: Ipv4Addr) -> Option<&'static str> {
    Some(match ip.octets() {
        [0, ..] => "unspecified",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "private",
        [100, 64..=127, ..] => "carrier-grade NAT",
        [127, ..] => "loopback",
        [169, 254, ..] => "link-local",
        [192, 0, 0, _] => "protocol assignment",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "documentation",
        [192, 31, 196, _] | [192, 175, 48, _] => "AS112 sink",
        [192, 52, 193, _] => "multicast tunnel",
        [192, 88, 99, _] => "6to4 relay",
        [198, 18..=19, ..] => "benchmarking",
        [224..=239, ..] => "multicast",
        [255, 255, 255, 255] => "broadcast",
        [240..=255, ..] => "reserved",
        _ => return None,
    })
}

/// Global unicast is allowed unless it is listed here or embeds a blocked IPv4 address; everything else is
/// blocked.
fn special_kind_v6(ip: Ipv6Addr) -> Option<&'static str> {
    // Before the embedded addresses: these two also have the IPv4-compatible form.
    match ip {
        Ipv6Addr::UNSPECIFIED => return Some("unspecified"),
        Ipv6Addr::LOCALHOST => return Some("loopback"),
        _ => {}
    }
    let embedded_kind = embedded_v4(ip).find_map(|v4| special_kind(IpAddr::V4(v4)));
    embedded_kind.or_else(|| special_range_v6(ip))
}

fn special_range_v6(ip: Ipv6Addr) -> Option<&'static str> {
    Some(match ip.segments() {
        [0x64, 0xff9b, 1, ..] => "local-use NAT64",
        [0x2001, 0, ..] => "Teredo",
        [0x2001, 0x1..=0x1ff, ..] => "protocol assignment",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "documentation",
        [0x2002, ..] => "6to4",
        [0x2620, 0x4f, 0x8000, ..] => "AS112 sink",
        // The first is NAT64: with DNS64 every IPv4-only destination resolves to it. The caller has
        // checked the embedded address.
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] | [0x2000..=0x3fff, ..] => return None,
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => "private",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xff00..=0xffff, ..] => "multicast",
        _ => "not global unicast",
    })
}

/// The IPv4 addresses embedded in `ip`. The mapped form is not included, because addresses are canonical
/// here.
fn embedded_v4(ip: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let s = ip.segments();
    let last = v4_of(s[6], s[7]);
    let formats = [
        // IPv4-compatible, RFC 4291 section 2.5.5.1.
        (s[..6] == [0, 0, 0, 0, 0, 0], last),
        // SIIT, RFC 2765.
        (s[..6] == [0, 0, 0, 0, 0xffff, 0], last),
        // NAT64 by the well-known prefix, RFC 6052.
        (s[..6] == [0x64, 0xff9b, 0, 0, 0, 0], last),
        // NAT64 by the local-use prefix, RFC 8215.
        (s[..3] == [0x64, 0xff9b, 1], last),
        // 6to4, RFC 3056.
        (s[0] == 0x2002, v4_of(s[1], s[2])),
        // Teredo, RFC 4380, which stores the address inverted.
        (s[..2] == [0x2001, 0], v4_of(!s[6], !s[7])),
        // ISATAP, RFC 5214, under any prefix.
        (s[4] & !0x200 == 0 && s[5] == 0x5efe, last),
    ];
    formats.into_iter().filter_map(|(is_format, v4)| is_format.then_some(v4))
}

fn v4_of(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

/// Why a URL cannot be the URL of a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationUrlError {
    #[error("the scheme is `{scheme}`; it must be `https` or `http`")]
    Scheme { scheme: String },
    #[error("the URL contains a user name or password; send credentials in a header instead")]
    UserInfo,
    #[error("the URL has a fragment (`#…`), which is never sent")]
    Fragment,
    #[error("the URL contains `{MASK}`, which replaces a hidden value; enter the value itself")]
    Masked,
    #[error("the URL is {length} bytes long; at most {URL_BYTES_MAX} are allowed")]
    TooLong { length: usize },
    #[error("port {port} is not used for HTTP")]
    Port { port: u16 },
}

/// Checks whether `url` can be the URL of a destination. Does not check its address:
/// [`AddressPolicy::check_host`] does for an IP address, the connector for a name.
///
/// Takes a parsed [`Url`], not a string: the parser turns `0x7f.1`, `2130706433` and `①②⑦.0.0.1` into
/// `127.0.0.1`, and parsing a text twice is how such checks are bypassed. It also rejects an HTTP URL
/// without a host.
pub fn check_url(url: &Url) -> Result<(), DestinationUrlError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(DestinationUrlError::Scheme { scheme: url.scheme().to_owned() });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(DestinationUrlError::UserInfo);
    }
    if url.fragment().is_some() {
        return Err(DestinationUrlError::Fragment);
    }
    if redact::has_mask(&url[url::Position::BeforePath..url::Position::AfterQuery]) {
        return Err(DestinationUrlError::Masked);
    }
    let length = url.as_str().len();
    if length > URL_BYTES_MAX {
        return Err(DestinationUrlError::TooLong { length });
    }
    match url.port() {
        Some(port) if PORTS_DENIED.contains(&port) => Err(DestinationUrlError::Port { port }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replaced_allow_list_holds_from_then_on() {
        let (used, next) = (policy(&["10.0.0.0/8"]), policy(&["192.168.0.0/16"]));

        used.replace(&next);

        assert!(used.check(ip("10.0.0.7")).is_err());
        assert!(used.check(ip("192.168.0.7")).is_ok());
    }

    #[test]
    fn ipv6_addresses_of_one_64_network_share_a_bucket() {
        let bucket = |text: &str| address_bucket(text.parse().unwrap()).to_string();
        let cases = [
            ("IPv4", "203.0.113.7", "203.0.113.7"),
            ("IPv4-mapped", "::ffff:203.0.113.7", "203.0.113.7"),
            ("first of a network", "2001:db8:1:2::", "2001:db8:1:2::"),
            ("last of a network", "2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::"),
            ("next network", "2001:db8:1:3::1", "2001:db8:1:3::"),
            ("loopback", "::1", "::"),
        ];
        for (name, address, expected) in cases {
            assert_eq!(bucket(address), expected, "case: {name}");
        }
    }

    /// Every kind with addresses at and inside its boundaries, separated by spaces.
    const BLOCKED: &[(&str, &str)] = &[
        ("unspecified", "0.0.0.0 0.0.0.1 0.1.2.3 0.255.255.255 ::"),
        (
            "private",
            "10.0.0.0 10.0.0.1 10.255.255.255 172.16.0.0 172.16.0.1 172.20.10.2 172.31.255.255 \
             192.168.0.0 192.168.1.1 192.168.255.255 fc00:: fc00::1 fd00::1 fd12:3456:789a::1 \
             fdff:ffff:ffff::1 fd00:ec2::253 fec0::1 feff:ffff::1",
        ),
        ("carrier-grade NAT", "100.64.0.0 100.64.0.1 100.100.100.199 100.127.255.255"),
        ("loopback", "127.0.0.0 127.0.0.1 127.0.0.53 127.1.2.3 127.255.255.255 ::1"),
        (
            "link-local",
            "169.254.0.0 169.254.0.1 169.254.169.253 169.254.169.255 169.254.255.255 fe80:: \
             fe80::1 fe80::a9fe:a9fd fe90::1 febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        (
            "cloud metadata",
            "169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 168.63.129.16 \
             192.0.0.192 fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:42::42 fd00:c1::a9fe:a9fe \
             fe80::a9fe:a9fe",
        ),
        (
            "protocol assignment",
            "192.0.0.0 192.0.0.8 192.0.0.9 192.0.0.170 192.0.0.255 2001:1::1 2001:2::1 \
             2001:3::1 2001:4:112::1 2001:10::1 2001:20::1 2001:30::1 2001:1ff:ffff::1",
        ),
        (
            "documentation",
            "192.0.2.0 192.0.2.1 192.0.2.255 198.51.100.0 198.51.100.7 198.51.100.255 \
             203.0.113.0 203.0.113.9 203.0.113.255 2001:db8:: 2001:db8::1 2001:db8:ffff::1 \
             3fff::1 3fff:fff:ffff::1",
        ),
        ("AS112 sink", "192.31.196.0 192.31.196.255 192.175.48.1 192.175.48.255 2620:4f:8000::1"),
        ("multicast tunnel", "192.52.193.0 192.52.193.1 192.52.193.255"),
        ("6to4 relay", "192.88.99.0 192.88.99.1 192.88.99.255"),
        ("benchmarking", "198.18.0.0 198.18.0.1 198.19.0.1 198.19.255.255"),
        (
            "multicast",
            "224.0.0.0 224.0.0.1 232.1.1.1 239.255.255.250 239.255.255.255 ff00:: ff02::1 \
             ff05::2 ff0e::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ),
        ("reserved", "240.0.0.0 240.0.0.1 250.1.2.3 255.0.0.1 255.255.255.254"),
        ("broadcast", "255.255.255.255"),
        ("local-use NAT64", "64:ff9b:1::808:808 64:ff9b:1:ffff::808:808"),
        ("Teredo", "2001:0:4136:e378:8000:63bf:f7f7:f7f7 2001::f7f7:f7f7"),
        ("6to4", "2002:808:808::1 2002:5db8:d822::"),
        (
            "not global unicast",
            "::808:808 ::ffff:0:808:808 ::5efe:808:808 ::1:0:0:1 1:: 64:ff9b::1:808:808 \
             64:ff9b:2::808:808 100::1 100:0:0:1::1 200::1 400::1 800::1 1000::1 1fff:ffff::1 \
             4000::1 5f00::1 6000::1 8000::1 a000::1 c000::1 e000::1 f000::1 f800::1 fbff::1 \
             fe00::1 fe7f:ffff::1",
        ),
    ];

    /// IPv6 addresses that embed a blocked IPv4 address, with its kind.
    const BLOCKED_CARRIERS: &[(&str, &str)] = &[
        (
            "loopback",
            "::ffff:127.0.0.1 ::ffff:7f00:1 ::127.0.0.1 ::7f00:1 ::ffff:0:127.0.0.1 \
             ::ffff:0:7f00:1 64:ff9b::127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::7f00:1 2002:7f00:1:: \
             2002:7f00:1::1 2001:0:808:808::80ff:fffe ::5efe:7f00:1 ::200:5efe:7f00:1 \
             fe80::5efe:7f00:1 2606:4700::5efe:7f00:1 2606:4700::200:5efe:7f00:1",
        ),
        (
            "cloud metadata",
            "::ffff:169.254.169.254 ::ffff:a9fe:a9fe ::a9fe:a9fe 64:ff9b::a9fe:a9fe \
             64:ff9b:1::a9fe:a9fe 2002:a9fe:a9fe:: 2001::5601:5601 ::5efe:a9fe:a9fe \
             64:ff9b::168.63.129.16 2606:4700::5efe:a83f:8110",
        ),
        (
            "private",
            "::ffff:10.0.0.1 ::ffff:192.168.0.1 ::ffff:172.16.0.1 ::a00:1 64:ff9b::10.0.0.1 \
             64:ff9b::192.168.1.1 2002:a00:1::1 2002:c0a8:101::1 2001:0:1::f5ff:fffe \
             2a00:1450::5efe:c0a8:101",
        ),
        ("carrier-grade NAT", "::ffff:100.64.0.1 64:ff9b::6440:1 2002:6440:1::"),
        ("unspecified", "::ffff:0.0.0.0 ::2 64:ff9b:: 2002:: 2002:0:1::"),
        ("broadcast", "::ffff:255.255.255.255 64:ff9b::ffff:ffff 2002:ffff:ffff::"),
    ];

    /// Ordinary public addresses, including those next to blocked ranges.
    const PUBLIC: &str = "\
        1.1.1.1 8.8.8.8 93.184.216.34 1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 \
        126.255.255.255 128.0.0.0 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 \
        172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.31.195.255 \
        192.31.197.0 192.52.192.255 192.52.194.0 192.88.98.255 192.88.100.0 192.167.255.255 \
        192.169.0.0 192.175.47.255 192.175.49.0 198.17.255.255 198.20.0.0 198.51.99.255 \
        198.51.101.0 203.0.112.255 203.0.114.0 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 \
        64:ff9b::5db8:d822 2000::1 2001:200::1 2001:4860:4860::8888 2001:db7::1 2001:db9::1 \
        2003::1 2606:4700:4700::1111 2620:4f:7fff::1 2620:4f:8001::1 2a00:1450:4001::200e \
        2606:4700::5efe:808:808 2606:4700::400:5efe:7f00:1 2606:4700::1:5efe:7f00:1 \
        2606:4700::5eff:7f00:1 3ffe::1 3fff:1000::1";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|_| panic!("not an address: {text}"))
    }

    fn policy(allow: &[&str]) -> AddressPolicy {
        AddressPolicy::new(allow.iter().map(|net| net.parse().unwrap()).collect())
    }

    fn kind_without_allow_list(address: IpAddr) -> Option<&'static str> {
        AddressPolicy::default().check(address).err().map(|blocked| blocked.kind)
    }

    #[test]
    fn special_addresses_are_blocked_with_their_kind() {
        for (kind, addresses) in BLOCKED.iter().chain(BLOCKED_CARRIERS) {
            for address in addresses.split(' ') {
                assert_eq!(kind_without_allow_list(ip(address)), Some(*kind), "case: {address}");
            }
        }
    }

    #[test]
    fn public_addresses_are_allowed() {
        for address in PUBLIC.split(' ') {
            assert_eq!(kind_without_allow_list(ip(address)), None, "case: {address}");
        }
    }

    #[test]
    fn allow_list_allows_only_its_networks() {
        let cases: &[(&str, &[&str], &str, bool)] = &[
            ("loopback", &["127.0.0.0/8"], "127.0.0.1", true),
            ("its mapped form", &["127.0.0.0/8"], "::ffff:127.0.0.1", true),
            ("not the other loopback", &["127.0.0.0/8"], "::1", false),
            ("the other loopback when listed", &["::1/128"], "::1", true),
            ("not its NAT64 form", &["127.0.0.0/8"], "64:ff9b::7f00:1", false),
            ("not its 6to4 form", &["127.0.0.0/8"], "2002:7f00:1::", false),
            ("a network listed in mapped form", &["::ffff:10.0.0.0/104"], "10.1.2.3", true),
            ("and not more than it", &["::ffff:10.0.0.0/104"], "172.16.0.1", false),
            ("a short mapped network is not IPv4", &["::ffff:0:0/90"], "10.1.2.3", false),
            ("one machine", &["192.168.1.10/32"], "192.168.1.10", true),
            ("its neighbor", &["192.168.1.10/32"], "192.168.1.11", false),
            ("host bits in the list", &["10.1.2.3/8"], "10.9.9.9", true),
            ("the second entry", &["10.0.0.0/8", "fd00::/8"], "fd00::1", true),
            ("everything", &["0.0.0.0/0"], "240.0.0.1", true),
            ("a public address needs no entry", &["10.0.0.0/8"], "8.8.8.8", true),
            ("an IPv6 list does not open IPv4", &["::/0"], "10.0.0.1", false),
            ("local NAT64", &["64:ff9b:1::/48"], "64:ff9b:1::a00:1", true),
        ];
        for (name, allow, address, expected) in cases {
            assert_eq!(policy(allow).check(ip(address)).is_ok(), *expected, "case: {name}");
        }
    }

    #[test]
    fn link_local_and_metadata_stay_blocked_unless_listed_exactly() {
        let cases: &[(&str, &[&str], &str, bool)] = &[
            ("everything", &["0.0.0.0/0"], "169.254.169.254", false),
            ("half of everything", &["128.0.0.0/1"], "169.254.0.1", false),
            ("a range around it", &["169.254.0.0/15"], "169.254.169.254", false),
            ("the range itself", &["169.254.0.0/16"], "169.254.10.1", true),
            ("a part of the range", &["169.254.169.0/24"], "169.254.169.254", true),
            ("the address itself", &["169.254.169.254/32"], "169.254.169.254", true),
            ("another part", &["169.254.1.0/24"], "169.254.169.254", false),
            (
                "a broad entry beside an exact one",
                &["0.0.0.0/0", "169.254.9.9/32"],
                "169.254.9.8",
                false,
            ),
            ("mapped", &["0.0.0.0/0"], "::ffff:169.254.169.254", false),
            ("everything in IPv6", &["::/0"], "fe80::1", false),
            ("IPv6 link-local", &["fe80::/10"], "fe80::1", true),
            ("one link", &["fe80::/64"], "fe80::1", true),
            ("unique local does not open AWS", &["fd00::/8"], "fd00:ec2::254", false),
            ("unique local does not open Google", &["fc00::/7"], "fd20:ce::254", false),
            ("AWS listed", &["fd00:ec2::254/128"], "fd00:ec2::254", true),
            ("CGNAT does not open Alibaba", &["100.64.0.0/10"], "100.100.100.200", false),
            ("Alibaba listed", &["100.100.100.200/32"], "100.100.100.200", true),
            ("everything does not open Azure", &["0.0.0.0/0"], "168.63.129.16", false),
            ("carried by NAT64", &["64:ff9b::/96"], "64:ff9b::a9fe:a9fe", false),
            ("carried by 6to4", &["::/0"], "2002:a9fe:a9fe::1", false),
            ("carried by ISATAP", &["::/0"], "fd00::5efe:a9fe:a9fe", false),
            ("carried, though IPv4 is listed", &["::/0", "169.254.0.0/16"], "2002:a9fe:1::", false),
        ];
        for (name, allow, address, expected) in cases {
            assert_eq!(policy(allow).check(ip(address)).is_ok(), *expected, "case: {name}");
        }
    }

    #[test]
    fn blocked_address_error_names_address_and_kind() {
        let blocked = AddressPolicy::default().check(ip("::ffff:10.0.0.7")).unwrap_err();

        assert_eq!(blocked.to_string(), "10.0.0.7 is not allowed (private)");
    }

    #[test]
    fn url_host_is_checked_as_parsed() {
        let cases = [
            ("dotted", "http://127.0.0.1/", Some("loopback")),
            ("decimal", "http://2130706433/", Some("loopback")),
            ("hexadecimal", "http://0x7f000001/", Some("loopback")),
            ("octal", "http://017700000001/", Some("loopback")),
            ("octal part", "http://0177.0.0.1/", Some("loopback")),
            ("hexadecimal part", "http://0x7f.0.0.1/", Some("loopback")),
            ("mixed", "http://0x7f.1/", Some("loopback")),
            ("two parts", "http://127.1/", Some("loopback")),
            ("three parts", "http://127.0.1/", Some("loopback")),
            ("zero", "http://0/", Some("unspecified")),
            ("empty hexadecimal", "http://0x/", Some("unspecified")),
            ("trailing dot", "http://127.0.0.1./", Some("loopback")),
            ("full-width digits", "http://１２７.０.０.１/", Some("loopback")),
            ("circled digits", "http://①②⑦.⓪.⓪.①/", Some("loopback")),
            ("ideographic full stop", "http://127。0。0。1/", Some("loopback")),
            ("percent-encoded", "http://%31%32%37.0.0.1/", Some("loopback")),
            ("leading zeros are octal", "http://0251.0376.0251.0376/", Some("cloud metadata")),
            ("decimal metadata", "http://2852039166/", Some("cloud metadata")),
            ("hexadecimal metadata", "https://0xa9fea9fe/latest", Some("cloud metadata")),
            ("backslash", "http:\\\\127.0.0.1\\@example.com/", Some("loopback")),
            ("user information", "http://example.com@127.0.0.1/", Some("loopback")),
            ("fragment before at", "http://127.0.0.1#@example.com/", Some("loopback")),
            ("query before at", "http://127.0.0.1?@example.com/", Some("loopback")),
            ("tab in the host", "http://127.0.\t0.1/", Some("loopback")),
            ("no slashes", "http:127.0.0.1", Some("loopback")),
            ("private with port", "https://192.168.0.1:8443/x", Some("private")),
            ("IPv6", "http://[::1]/", Some("loopback")),
            ("IPv6 in full", "http://[0:0:0:0:0:0:0:1]/", Some("loopback")),
            ("IPv6 mapped", "http://[::ffff:127.0.0.1]/", Some("loopback")),
            ("IPv6 mapped metadata", "http://[::ffff:169.254.169.254]/", Some("cloud metadata")),
            ("IPv6 AWS", "http://[fd00:ec2::254]/", Some("cloud metadata")),
            ("public", "http://8.8.8.8/", None),
            ("public decimal", "http://134744072/", None),
            ("public IPv6", "http://[2606:4700:4700::1111]/", None),
            ("a name", "https://example.com/hook", None),
            ("a name that means loopback", "http://localhost/", None),
            ("a name with a trailing dot", "http://localhost./", None),
            ("a name that looks like an address", "http://127.0.0.1.nip.io/", None),
        ];
        for (name, text, expected) in cases {
            let url = Url::parse(text).unwrap_or_else(|error| panic!("case {name}: {error}"));
            let verdict = AddressPolicy::default().check_host(&url.host().unwrap());
            assert_eq!(verdict.err().map(|blocked| blocked.kind), expected, "case: {name}");
        }
    }

    #[test]
    fn invalid_hosts_do_not_parse_as_urls() {
        let cases = [
            ("no host", "http://"),
            ("only a port", "http://:80/"),
            ("too large a number", "http://4294967296/"),
            ("too large a part", "http://256.0.0.1/"),
            ("five parts", "http://1.2.3.4.5/"),
            ("not octal", "http://09.0.0.1/"),
            ("zone", "http://[fe80::1%25eth0]/"),
            ("bare zone", "http://[fe80::1%eth0]/"),
            ("open bracket", "http://[::1/"),
            ("encoded slash", "http://a%2fb/"),
            ("null byte", "http://127.0.0.1%00.example.com/"),
            ("space", "http://127.0.0.1 .example.com/"),
        ];
        for (name, text) in cases {
            assert!(Url::parse(text).is_err(), "case: {name}");
        }
    }

    #[test]
    fn destination_url_is_checked_for_invalid_parts() {
        let user = Err(DestinationUrlError::UserInfo);
        let scheme = |scheme: &str| Err(DestinationUrlError::Scheme { scheme: scheme.to_owned() });
        let port = |port| Err(DestinationUrlError::Port { port });
        let cases = [
            ("https", "https://example.com/hook", Ok(())),
            ("http", "http://example.com/hook?a=b", Ok(())),
            ("an IP address is not checked here", "http://127.0.0.1:9000/", Ok(())),
            ("usual port written out", "https://example.com:443/", Ok(())),
            ("high port", "https://example.com:8443/", Ok(())),
            ("ftp", "ftp://example.com/", scheme("ftp")),
            ("file", "file:///etc/passwd", scheme("file")),
            ("gopher", "gopher://127.0.0.1:6379/_FLUSHALL", scheme("gopher")),
            ("javascript", "javascript:alert(1)", scheme("javascript")),
            ("unix socket", "unix:/var/run/docker.sock", scheme("unix")),
            ("user", "https://user@example.com/", user.clone()),
            ("password", "https://:secret@example.com/", user),
            ("fragment", "https://example.com/hook#top", Err(DestinationUrlError::Fragment)),
            ("empty fragment", "https://example.com/hook#", Err(DestinationUrlError::Fragment)),
            ("mask", "https://example.com/hook?a=1&token=•••", Err(DestinationUrlError::Masked)),
            ("mask in path", "https://example.com/hook/•••/a", Err(DestinationUrlError::Masked)),
            ("port zero", "http://example.com:0/", port(0)),
            ("ssh", "http://example.com:22/", port(22)),
            ("smtp", "http://example.com:25/", port(25)),
            ("postgres", "http://example.com:5432/", port(5432)),
            ("redis", "http://example.com:6379/", port(6379)),
            ("memcached", "https://example.com:11211/", port(11211)),
        ];
        for (name, text, expected) in cases {
            let url = Url::parse(text).unwrap_or_else(|error| panic!("case {name}: {error}"));
            assert_eq!(check_url(&url), expected, "case: {name}");
        }
    }

    #[test]
    fn url_longer_than_limit_is_rejected() {
        let url = |length: usize| {
            let start = "https://example.com/";
            Url::parse(&format!("{start}{}", "a".repeat(length - start.len()))).unwrap()
        };

        assert_eq!(check_url(&url(URL_BYTES_MAX)), Ok(()));
        let length = URL_BYTES_MAX + 1;
        assert_eq!(check_url(&url(length)), Err(DestinationUrlError::TooLong { length }));
    }

    /// All IPv6 formats that embed an IPv4 address, with arbitrary unused bits.
    fn embedding_formats(v4: Ipv4Addr, free: [u16; 4]) -> [Ipv6Addr; 9] {
        let bits = v4.to_bits();
        let (high, low) = ((bits >> 16) as u16, bits as u16);
        let [a, b, c, d] = free;
        let global = 0x2000 | (a & 0x1fff);
        [
            [0, 0, 0, 0, 0, 0xffff, high, low],
            [0, 0, 0, 0, 0, 0, high, low],
            [0, 0, 0, 0, 0xffff, 0, high, low],
            [0x64, 0xff9b, 0, 0, 0, 0, high, low],
            [0x64, 0xff9b, 1, a, b, c, high, low],
            [0x2002, high, low, a, b, c, d, a ^ b],
            [0x2001, 0, a, b, c, d, !high, !low],
            [global, b, c, d, 0, 0x5efe, high, low],
            [global, b, c, d, 0x200, 0x5efe, high, low],
        ]
        .map(Ipv6Addr::from)
    }

    /// Half of the addresses are from blocked ranges, which random addresses rarely hit.
    fn any_v4() -> impl Strategy<Value = Ipv4Addr> {
        let special: Vec<Ipv4Addr> = (BLOCKED.iter())
            .flat_map(|(_, addresses)| addresses.split(' ').filter_map(|text| text.parse().ok()))
            .collect();
        prop_oneof![any::<Ipv4Addr>(), prop::sample::select(special)]
    }

    proptest! {
        #[test]
        fn ipv6_formats_cannot_bypass_ipv4_rules(
            v4 in any_v4(), free in any::<[u16; 4]>(),
        ) {
            let refused = kind_without_allow_list(IpAddr::V4(v4)).is_some();
            for carrier in embedding_formats(v4, free) {
                let carrier_refused = kind_without_allow_list(IpAddr::V6(carrier)).is_some();
                prop_assert!(!refused || carrier_refused, "{} as {}", v4, carrier);
            }
        }

        #[test]
        fn addresses_outside_global_unicast_are_blocked(bits in any::<u128>()) {
            let address = Ipv6Addr::from_bits(bits);
            let is_global = bits >> 125 == 0b001;
            if kind_without_allow_list(IpAddr::V6(address)).is_none() {
                prop_assert!(is_global, "{}", address);
            }
        }

        #[test]
        fn broad_allow_list_entry_does_not_allow_link_local(low in any::<u16>(), prefix_len in 0u8..16) {
            let address = Ipv4Addr::from_bits(0xa9fe_0000 | u32::from(low));
            let net = Ipv4Net::new(address, prefix_len).unwrap();
            prop_assert!(AddressPolicy::new(vec![net.into()]).check(address.into()).is_err());
        }
    }
}
