//! Reads the headers in front of a UDP port, in the order of the frame.
//!
//! Not a checking parser: it reads only what finding address and port takes, and believes no length
//! further than the next bounds check. Lengths and checksums are for the receiver to judge.
//!
//! The verifier proves what [`Cursor`] keeps: a byte is read only after a comparison against the
//! end of the frame. Everything is inlined into one function without calls, and each loop has a
//! constant bound. There is nothing of the kernel in here, so ordinary tests run the same code over
//! a slice.

/// Tags in front of the EtherType: one for a VLAN, two for a provider bridge (802.1ad).
const VLAN_TAGS_MAX: usize = 2;
/// Extension headers in front of UDP. More than a sender has reason for; each one costs verifier
/// states.
const EXTENSIONS_MAX: usize = 4;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_PROVIDER_VLAN: u16 = 0x88a8;

const PROTOCOL_UDP: u8 = 17;
const EXTENSION_HOP_BY_HOP: u8 = 0;
const EXTENSION_ROUTING: u8 = 43;
const EXTENSION_DESTINATION: u8 = 60;

const MAC_ADDRESSES_LEN: usize = 12;
const IPV4_LEN_MIN: usize = 20;
/// More-fragments flag and fragment offset; the don't-fragment and reserved bits are left out.
const IPV4_FRAGMENT: u16 = 0x3fff;

/// The part of a frame that has not been read yet.
///
/// With a frame in several buffers this is the first one: headers that a driver splits off the
/// payload are still whole in it.
pub(crate) struct Cursor {
    at: usize,
    end: usize,
}

impl Cursor {
    /// A cursor at the address `start`, in front of a frame that ends before the address `end`.
    ///
    /// # Safety
    ///
    /// The bytes from `start` to `end` are readable for as long as the cursor is used.
    #[inline(always)]
    pub(crate) unsafe fn new(start: usize, end: usize) -> Self {
        Self { at: start, end }
    }

    #[inline(always)]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.peek()?;
        self.at += N;
        Some(bytes)
    }

    #[inline(always)]
    fn peek<const N: usize>(&self) -> Option<[u8; N]> {
        if self.at + N > self.end {
            return None;
        }
        // SAFETY: `at` never moves back, so with the comparison above the `N` bytes are between the
        // `start` and the `end` that `new` was promised; a byte array has no alignment and no
        // invalid values.
        Some(unsafe { *(self.at as *const [u8; N]) })
    }

    /// Moves over `len` bytes; whether they are there is checked by the next read.
    #[inline(always)]
    fn skip(&mut self, len: usize) {
        self.at += len;
    }
}

/// This host's addresses, one of each family at most, in the order of octets that they have in a
/// frame. Zero, which is nobody's address, stands for none.
///
/// Asked for where one is compared: a frame to others should not cost a look at both.
pub(crate) trait Addresses {
    fn v4(&self) -> u32;
    fn v6(&self) -> [u64; 2];
}

/// The destination port of an unfragmented UDP datagram to one of `addresses`, from the start of
/// its Ethernet frame.
///
/// `None` is every other frame, and every frame that ends before its UDP header does.
#[inline(always)]
pub(crate) fn udp_destination(frame: &mut Cursor, addresses: &impl Addresses) -> Option<u16> {
    match ethertype(frame)? {
        ETHERTYPE_IPV4 => ipv4(frame, addresses)?,
        ETHERTYPE_IPV6 => ipv6(frame, addresses)?,
        _ => return None,
    }
    let [_, _, port @ .., _, _, _, _]: [u8; 8] = frame.take()?;
    Some(u16::from_be_bytes(port))
}

/// The EtherType behind at most [`VLAN_TAGS_MAX`] tags; behind more it is that of the next tag.
#[inline(always)]
fn ethertype(frame: &mut Cursor) -> Option<u16> {
    frame.skip(MAC_ADDRESSES_LEN);
    let mut ethertype = u16::from_be_bytes(frame.take()?);
    for _ in 0..VLAN_TAGS_MAX {
        if ethertype != ETHERTYPE_VLAN && ethertype != ETHERTYPE_PROVIDER_VLAN {
            break;
        }
        let [_, _, inner @ ..]: [u8; 4] = frame.take()?;
        ethertype = u16::from_be_bytes(inner);
    }
    Some(ethertype)
}

/// Moves to the UDP header of an IPv4 packet to us with any options, if it is not a fragment.
#[inline(always)]
fn ipv4(frame: &mut Cursor, addresses: &impl Addresses) -> Option<()> {
    let header: [u8; IPV4_LEN_MIN] = frame.peek()?;
    let len = usize::from(header[0] & 0x0f) * 4;
    let whole = u16::from_be_bytes([header[6], header[7]]) & IPV4_FRAGMENT == 0;
    if header[0] >> 4 != 4 || len < IPV4_LEN_MIN || !whole || header[9] != PROTOCOL_UDP {
        return None;
    }
    let address = u32::from_ne_bytes([header[16], header[17], header[18], header[19]]);
    if address != addresses.v4() || address == 0 {
        return None;
    }
    frame.skip(len);
    Some(())
}

/// Moves to the UDP header of an IPv6 packet to us, over at most [`EXTENSIONS_MAX`] extension
/// headers of the kinds that leave what follows them readable and whole. Fragment headers, AH, ESP
/// and unknown kinds do not.
#[inline(always)]
fn ipv6(frame: &mut Cursor, addresses: &impl Addresses) -> Option<()> {
    let header: [u8; 24] = frame.take()?;
    let address = [frame.take()?, frame.take()?].map(u64::from_ne_bytes);
    if header[0] >> 4 != 6 || address != addresses.v6() || address == [0, 0] {
        return None;
    }
    let mut next = header[6];
    for _ in 0..EXTENSIONS_MAX {
        match next {
            EXTENSION_HOP_BY_HOP | EXTENSION_ROUTING | EXTENSION_DESTINATION => {
                let extension: [u8; 2] = frame.peek()?;
                next = extension[0];
                frame.skip((usize::from(extension[1]) + 1) * 8);
            }
            _ => break,
        }
    }
    (next == PROTOCOL_UDP).then_some(())
}
