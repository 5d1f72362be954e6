//! The AF_XDP socket that has a queue: one question to the kernel.
//!
//! By netlink's `sock_diag`, whose messages are not those of rtnetlink: a header, a fixed part, and
//! attributes
//! (<https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/xdp_diag.h>).

use std::{io, time::Duration};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
    sockopt,
};

const HEADER_LEN: usize = 16;
/// `struct xdp_diag_req` and `struct xdp_diag_msg`, without their headers.
const REQUEST_LEN: usize = 20;
const MESSAGE_LEN: usize = 16;
const ATTRIBUTE_HEADER_LEN: usize = 4;

/// `SOCK_DIAG_BY_FAMILY`, the type of question and of answers.
const BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// `XDP_SHOW_INFO`, what is wanted of each socket, and `XDP_DIAG_INFO`, the attribute it comes in.
const SHOW_INFO: u32 = 1;
const DIAG_INFO: u16 = 1;

/// The kernel answers at once; this only ends a wait that would otherwise never end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The inode of a socket that is bound to this queue, in the calling thread's network namespace.
/// `None` if there is none by now.
///
/// # Errors
/// The error of the kernel: one without `CONFIG_XDP_SOCKETS_DIAG` does not know the question.
pub(crate) fn socket_on(interface: u32, queue: u32) -> io::Result<Option<u32>> {
    let protocol = Some(netlink::SOCK_DIAG);
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    send(&socket, &question(), SendFlags::empty())?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let receive = || recv(&socket, &mut buffer[..], RecvFlags::empty());
        let (len, _) = rustix::io::retry_on_intr(receive)?;
        match find(&buffer[..len], interface, queue) {
            Found::Socket(inode) => return Ok(Some(inode)),
            Found::End => return Ok(None),
            Found::Refused(errno) => return Err(io::Error::from_raw_os_error(errno)),
            Found::Nothing => {}
        }
    }
}

fn question() -> [u8; HEADER_LEN + REQUEST_LEN] {
    let mut bytes = [0; HEADER_LEN + REQUEST_LEN];
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    bytes[HEADER_LEN] = AddressFamily::XDP.as_raw() as u8;
    bytes[HEADER_LEN + 8..HEADER_LEN + 12].copy_from_slice(&SHOW_INFO.to_ne_bytes());
    bytes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Socket(u32),
    /// Not in this datagram; there are more.
    Nothing,
    /// The last datagram has been.
    End,
    Refused(i32),
}

/// Looks for the socket among the messages of a datagram.
fn find(mut datagram: &[u8], interface: u32, queue: u32) -> Found {
    while let Some((kind, body, rest)) = split(datagram, HEADER_LEN, |header| {
        Some((u32_at(header, 0)? as usize, u16_at(header, 4)?))
    }) {
        match kind {
            NLMSG_DONE => return Found::End,
            NLMSG_ERROR => {
                let errno = u32_at(body, 0).unwrap_or_default() as i32;
                return Found::Refused(errno.saturating_neg());
            }
            BY_FAMILY if is_on(body, interface, queue) => {
                return u32_at(body, 4).map_or(Found::Nothing, Found::Socket);
            }
            _ => {}
        }
        datagram = rest;
    }
    Found::Nothing
}

fn is_on(message: &[u8], interface: u32, queue: u32) -> bool {
    let mut attributes = message.get(MESSAGE_LEN..).unwrap_or_default();
    while let Some((kind, body, rest)) = split(attributes, ATTRIBUTE_HEADER_LEN, |header| {
        Some((usize::from(u16_at(header, 0)?), u16_at(header, 2)?))
    }) {
        if kind == DIAG_INFO {
            return (u32_at(body, 0), u32_at(body, 4)) == (Some(interface), Some(queue));
        }
        attributes = rest;
    }
    false
}

/// Splits `bytes`: the kind of the first part, its body, and the rest, which begins at four bytes.
fn split(
    bytes: &[u8],
    header_len: usize,
    read: impl Fn(&[u8]) -> Option<(usize, u16)>,
) -> Option<(u16, &[u8], &[u8])> {
    let (len, kind) = read(bytes)?;
    let body = bytes.get(header_len..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of the kernel: a socket on a queue.
    fn socket(inode: u32, interface: u32, queue: u32) -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|it| it.to_ne_bytes()).collect();
        let mut attribute: Vec<u8> = [12_u16, DIAG_INFO].map(u16::to_ne_bytes).concat();
        attribute.extend::<Vec<u8>>(words(&[interface, queue]));
        let mut message: Vec<u8> = words(&[(HEADER_LEN + MESSAGE_LEN + 12) as u32]);
        message.extend([BY_FAMILY, 0].map(u16::to_ne_bytes).concat());
        message.extend::<Vec<u8>>(words(&[0, 0, 44, inode, 0, 0]));
        message.extend(attribute);
        message
    }

    fn end() -> Vec<u8> {
        let mut message = 16_u32.to_ne_bytes().to_vec();
        message.extend(NLMSG_DONE.to_ne_bytes());
        message.resize(HEADER_LEN, 0);
        message
    }

    #[test]
    fn the_socket_of_the_queue_is_found_among_others() {
        let datagram = [socket(100, 7, 0), socket(101, 7, 1), socket(102, 8, 0)].concat();
        assert_eq!(find(&datagram, 7, 1), Found::Socket(101));
        assert_eq!(find(&datagram, 8, 0), Found::Socket(102));
        assert_eq!(find(&datagram, 8, 1), Found::Nothing);
        assert_eq!(find(&[datagram, end()].concat(), 8, 1), Found::End);
    }

    #[test]
    fn a_refusal_gives_its_error_number() {
        let mut message = 20_u32.to_ne_bytes().to_vec();
        message.extend(NLMSG_ERROR.to_ne_bytes());
        message.resize(HEADER_LEN, 0);
        message.extend((-libc::ENOENT).to_ne_bytes());
        assert_eq!(find(&message, 7, 0), Found::Refused(libc::ENOENT));
    }

    #[test]
    fn answers_that_are_cut_off_or_changed_do_not_panic() {
        let whole = [socket(100, 7, 0), socket(101, 7, 1), end()].concat();
        for len in 0..whole.len() {
            find(&whole[..len], 7, 1);
        }
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut changed = whole.clone();
                changed[at] = value;
                find(&changed, 7, 1);
            }
        }
    }
}
