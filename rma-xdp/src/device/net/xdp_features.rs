//! The driver's word about an interface's XDP: generic netlink, family `netdev`, which Linux 6.3
//! and newer have. Nothing is decided by it; it is for the words of a fallback.
//!
//! Two questions of one attribute each, and answers of a datagram each: no general client.

use std::{io, time::Duration};

use netlink_packet_core::NlasIterator;
use rustix::{
    fd::OwnedFd,
    net::{
        self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink,
        sockopt::{self, Timeout},
    },
};

/// The kernel answers at once; this only ends a wait that would otherwise never end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than an answer is.
const ANSWER_MAX: usize = 8192;

const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// Of `nlmsghdr` and `genlmsghdr`.
const HEADERS_LEN: usize = 20;

/// Numbers from
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/genetlink.h>.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// Numbers from <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/netdev.h>.
const FAMILY: &[u8] = b"netdev\0";
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 8;

/// The features that the driver offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XdpFeatures {
    /// AF_XDP sockets with zero-copy.
    pub(crate) zero_copy: bool,
    /// Whether packets of these may lie in several buffers.
    pub(crate) zero_copy_multi_buffer: bool,
}

impl XdpFeatures {
    /// Those of the interface with this index. `None` if the kernel does not tell.
    pub(crate) fn of(index: u32) -> Option<Self> {
        let mut socket = Generic::open().ok()?;
        let family = socket.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, FAMILY);
        let family = u16::from_ne_bytes(family.ok()?.get(CTRL_ATTR_FAMILY_ID)?);
        let index = index.to_ne_bytes();
        let device = socket.ask(family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &index).ok()?;
        let features = u64::from_ne_bytes(device.get(NETDEV_A_DEV_XDP_FEATURES)?);
        // Linux 6.3 to 6.5 do not tell: there packets lie in one.
        let segments = device.get(NETDEV_A_DEV_XDP_ZC_MAX_SEGS).map_or(1, u32::from_ne_bytes);
        Some(Self {
            zero_copy: features & NETDEV_XDP_ACT_XSK_ZEROCOPY != 0,
            zero_copy_multi_buffer: segments > 1,
        })
    }
}

/// A socket for questions of generic netlink.
struct Generic(OwnedFd);

/// An answer's attributes.
struct Answer(Vec<u8>);

impl Generic {
    fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::GENERIC))?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Self(socket))
    }

    /// Asks `family` with one attribute.
    fn ask(&mut self, family: u16, command: u8, kind: u16, value: &[u8]) -> io::Result<Answer> {
        let attribute_len = 4 + value.len();
        let len = HEADERS_LEN + attribute_len.next_multiple_of(4);
        let mut question = Vec::with_capacity(len);
        question.extend((len as u32).to_ne_bytes());
        question.extend(family.to_ne_bytes());
        question.extend(NLM_F_REQUEST.to_ne_bytes());
        // Sequence and port: one question at a time, and the kernel knows our port.
        question.extend([0; 8]);
        question.extend([command, 1, 0, 0]);
        question.extend((attribute_len as u16).to_ne_bytes());
        question.extend(kind.to_ne_bytes());
        question.extend(value);
        question.resize(len, 0);
        net::send(&self.0, &question, SendFlags::empty())?;
        let mut answer = vec![0; ANSWER_MAX];
        let (len, _) = net::recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(len);
        Answer::read(answer)
    }
}

impl Answer {
    fn read(mut message: Vec<u8>) -> io::Result<Self> {
        let short = || io::Error::from(io::ErrorKind::InvalidData);
        let [a, b] = message.get(4..6).and_then(|it| it.try_into().ok()).ok_or_else(short)?;
        if message.len() < HEADERS_LEN {
            return Err(short());
        }
        if u16::from_ne_bytes([a, b]) == NLMSG_ERROR {
            let errno = message[16..20].try_into().map(i32::from_ne_bytes).expect("four octets");
            return Err(io::Error::from_raw_os_error(errno.wrapping_neg()));
        }
        Ok(Self(message.split_off(HEADERS_LEN)))
    }

    /// The first octets of an attribute. `None` if there is none, or not as many.
    fn get<const N: usize>(&self, kind: u16) -> Option<[u8; N]> {
        let mut attributes = NlasIterator::new(&self.0[..]).map_while(Result::ok);
        let attribute = attributes.find(|attribute| attribute.kind() == kind)?;
        attribute.value().first_chunk().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_and_a_refusal_is_an_error() {
        let mut message = vec![0; HEADERS_LEN];
        message.extend([8, 0, 1, 0, 7, 0, 0, 0]);
        message.extend([12, 0, 3, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        let answer = Answer::read(message).unwrap();
        assert_eq!(answer.get(NETDEV_A_DEV_XDP_FEATURES).map(u64::from_ne_bytes), Some(9));
        assert_eq!(answer.get(NETDEV_A_DEV_IFINDEX).map(u64::from_ne_bytes), None, "too short");
        assert_eq!(answer.get(NETDEV_A_DEV_XDP_ZC_MAX_SEGS).map(u32::from_ne_bytes), None);
        let mut refused = vec![0; 36];
        refused[4] = NLMSG_ERROR as u8;
        refused[16..20].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        let error = Answer::read(refused).err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(Answer::read(vec![0; 6]).is_err());
    }

    #[test]
    fn loopback_has_no_zero_copy() {
        // A kernel before 6.3 does not tell.
        let features = XdpFeatures::of(1);
        assert!(features.is_none_or(|features| !features.zero_copy), "{features:?}");
    }
}
