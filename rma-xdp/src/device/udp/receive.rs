//! Datagrams from a socket, several with one call, and what the kernel knows about each: `recvmsg`
//! and `recvmmsg`, as rustix hands out no ancillary data of IP.
//!
//! With GRO the kernel may hand over several datagrams of one source as one, a *message* here, and
//! says how long each of them was but the last, which may be shorter.

use std::{
    ffi::c_int,
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
};

use arrayvec::ArrayVec;
use rma_core::{
    addr::HostAddr,
    backend::{BATCH, RxPacket},
    port::SourcePort,
    tally::Tally,
};
use rustix::io::Errno;

use super::{
    ancillary::{Ancillary, Told},
    config::FRAME_LEN_MAX,
    counters::UdpCounters,
    name::Name,
    option::last_error,
    peers::Peers,
    socket::Socket,
};
use crate::device::paths::PathTable;

/// The most messages that one call receives. More than are handed on at once gain nothing.
const MESSAGES: usize = BATCH;

/// The longest message of several datagrams: an IP packet is no longer.
const COALESCED_LEN_MAX: usize = 1 << 16;

/// How much further than a message is long the next one lies: an odd number of cache lines, so that
/// the beginnings of short ones do not all fall into one set of a first-level cache; and more than
/// a frame of 4 KiB, so that whole frames do not either, in a second-level one.
const STAGGER: usize = 67 * 64;

/// A message that has come, and what has been handed on of it.
#[derive(Clone, Copy, Debug)]
struct Message {
    /// The part of the inbox's memory that it lies in.
    part: usize,
    /// The source address in it.
    source: HostAddr,
    /// Its length.
    len: usize,
    /// How long each of its datagrams is but the last.
    segment: usize,
    /// Bytes that have been handed on.
    done: usize,
    /// Datagrams that have not.
    left: usize,
}

/// The packets received from a socket, until all of its packets have been handed on.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Parts of [`Inbox::stride`] bytes, each with room for a message.
    memory: Box<[u8]>,
    stride: usize,
    /// The longest message that fits.
    len_max: usize,
    /// The addresses that the kernel writes beside each message.
    names: Box<[Name; MESSAGES]>,
    ancillary: Box<[Ancillary; MESSAGES]>,
    /// In the order in which they came.
    messages: ArrayVec<Message, MESSAGES>,
    /// The index of the socket that they came by.
    socket: usize,
    /// How many datagrams the last message had: what the next ones are taken to have.
    per_message: usize,
}

/// The result of a receiving call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Datagrams that were counted and dropped, and calls that failed.
    pub(super) dropped: usize,
    /// Whether there may be more where this came from.
    pub(super) more: bool,
}

impl Inbox {
    /// An inbox for messages of several datagrams, or of one each.
    pub(super) fn new(coalesced: bool) -> Self {
        let len_max = if coalesced { COALESCED_LEN_MAX } else { FRAME_LEN_MAX };
        let stride = len_max + STAGGER;
        Self {
            // Not zeros: the kernel gives memory for those when they are first written to.
            memory: vec![0xff; MESSAGES * stride].into_boxed_slice(),
            stride,
            len_max,
            names: Box::new([Name::NOBODY; MESSAGES]),
            ancillary: Box::new([Ancillary::EMPTY; MESSAGES]),
            messages: ArrayVec::new(),
            socket: 0,
            per_message: 1,
        }
    }

    /// Receives what has come by the socket with this index: about `wanted` datagrams, in at most
    /// `messages_max` messages; fewer if the last message had several. To be called when the inbox
    /// is empty.
    pub(super) fn receive(
        &mut self,
        index: usize,
        socket: &Socket,
        wanted: usize,
        messages_max: usize,
        peers: &mut Peers,
        counters: &UdpCounters,
    ) -> Received {
        debug_assert!(self.messages.is_empty(), "what came before has been handed on");
        let at_once = (wanted / self.per_message).clamp(1, messages_max.min(MESSAGES));
        let came = match self.fetch(&socket.fd, at_once) {
            Ok(came) => came,
            Err(Errno::AGAIN) => return Received::default(),
            Err(_) => {
                counters.rx_errors.add(1);
                return Received { dropped: 1, more: true };
            }
        };
        counters.rx_calls.add(1);
        self.socket = index;
        let mut dropped = 0;
        let more = came.len() == at_once;
        for (part, Fetched { len, told, flags }) in came.into_iter().enumerate() {
            let told = self.ancillary[part].told(told, flags);
            let segment = told.segment.unwrap_or(len).max(1);
            // One of no bytes is one as well.
            let left = len.div_ceil(segment).max(1);
            self.per_message = left;
            match self.judge(len, told, &self.names[part], counters) {
                Ok(source) => {
                    peers.note(source, self.names[part].port() == socket.port.0);
                    let gro = told.segment.map_or(0, |_| left as u64);
                    counters.rx_gro_packets.add(gro);
                    self.messages.push(Message { part, source, len, segment, done: 0, left });
                }
                Err(reason) => {
                    reason.add(left as u64);
                    dropped += left;
                }
            }
        }
        // A call that brings fewer than it could has seen that there are no more.
        Received { dropped, more }
    }

    /// The source of a message; or the counter of what is wrong with it.
    fn judge<'c>(
        &self,
        len: usize,
        told: Told,
        name: &Name,
        counters: &'c UdpCounters,
    ) -> Result<HostAddr, &'c Tally> {
        if told.is_reassembled {
            return Err(&counters.rx_fragments);
        }
        if len > self.len_max || told.segment.unwrap_or(len) > FRAME_LEN_MAX {
            return Err(&counters.rx_truncated);
        }
        match name.address() {
            Some(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
                Err(&counters.rx_mapped_address)
            }
            Some(source) => Ok(source.into()),
            None => Err(&counters.rx_errors),
        }
    }

    /// Hands at most `max` of the packets to `on_packets`, [`BATCH`] at a time. Returns how many.
    pub(super) fn hand_on(
        &mut self,
        sockets: &[Socket],
        paths: &PathTable,
        max: usize,
        mut on_packets: impl FnMut(&mut [RxPacket<'_>]),
    ) -> usize {
        let mut handed = 0;
        while handed < max && !self.messages.is_empty() {
            let socket = &sockets[self.socket];
            let room = (max - handed).min(BATCH);
            let mut packets: ArrayVec<RxPacket<'_>, BATCH> = ArrayVec::new();
            let mut parts = self.memory.chunks_exact_mut(self.stride).enumerate();
            for message in &mut self.messages {
                let Some((_, part)) = parts.find(|(index, _)| *index == message.part) else {
                    break;
                };
                let mut rest = &mut part[message.done..message.len];
                while message.left > 0 && packets.len() < room {
                    let (bytes, behind) = rest.split_at_mut(message.segment.min(rest.len()));
                    rest = behind;
                    message.left -= 1;
                    message.done += bytes.len();
                    packets.push(RxPacket {
                        source: message.source,
                        destination: socket.address,
                        port: socket.port,
                        // Whatever it was: a bound socket answers from its own, so answers to all
                        // of a host's requests may share a packet.
                        source_port: SourcePort(socket.port.0),
                        reply_len_max: socket.frame_len_max_to(message.source, paths),
                        link: None,
                        bytes,
                    });
                }
            }
            on_packets(&mut packets);
            handed += packets.len();
            drop(packets);
            self.messages.retain(|message| message.left > 0);
        }
        handed
    }

    /// Asks the kernel for at most `count` messages, whatever it has. Returns of each its length
    /// and what was told beside it, or EAGAIN if there are none.
    fn fetch(&mut self, fd: &OwnedFd, count: usize) -> Result<ArrayVec<Fetched, MESSAGES>, Errno> {
        self.names[..count].fill(Name::NOBODY);
        let parts = self.memory.chunks_exact_mut(self.stride).take(count);
        let mut vectors: ArrayVec<libc::iovec, MESSAGES> = parts
            .map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: self.len_max })
            .collect();
        let beside = self.names.iter_mut().zip(self.ancillary.iter_mut());
        let mut headers: ArrayVec<libc::mmsghdr, MESSAGES> = vectors
            .iter_mut()
            .zip(beside)
            .map(|(vector, (name, ancillary))| {
                // SAFETY: every field of it may be zero, pointers included: then they point to
                // nothing.
                let mut header: libc::mmsghdr = unsafe { core::mem::zeroed() };
                let message = &mut header.msg_hdr;
                message.msg_name = ptr::from_mut(name).cast();
                message.msg_namelen = Name::LEN_MAX;
                message.msg_iov = ptr::from_mut(vector);
                message.msg_iovlen = 1;
                message.msg_control = ptr::from_mut(ancillary).cast();
                message.msg_controllen = size_of::<Ancillary>() as _;
                header
            })
            .collect();
        let came = receive_messages(fd, &mut headers)?;
        let outcomes = headers.iter().take(came).map(|header| Fetched {
            len: header.msg_len as usize,
            told: header.msg_hdr.msg_controllen as _,
            flags: header.msg_hdr.msg_flags,
        });
        Ok(outcomes.collect())
    }
}

/// A message that the kernel has written into the inbox.
#[derive(Clone, Copy, Debug)]
struct Fetched {
    /// Its length, also if that is more than what fitted.
    len: usize,
    /// How many bytes were told beside it.
    told: usize,
    flags: c_int,
}

/// Receives into what `headers` name, one message each. Returns how many came: at least one, or
/// EAGAIN.
fn receive_messages(fd: &OwnedFd, headers: &mut [libc::mmsghdr]) -> Result<usize, Errno> {
    // With TRUNC the kernel tells a message's length, not that of what fitted.
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    if let [header] = headers {
        // SAFETY: the descriptor is open, it is borrowed. The header names a buffer, a name and
        // room for ancillary data by their true lengths, as `fetch` made it; all live across the
        // call, and nobody else refers to them.
        let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header.msg_hdr, flags) };
        let Ok(len) = u32::try_from(len) else { return Err(last_error()) };
        header.msg_len = len;
        return Ok(1);
    }
    let (first, count) = (headers.as_mut_ptr(), headers.len() as libc::c_uint);
    // SAFETY: as above, for as many headers as there are. No time is named, so none is read.
    let came = unsafe { libc::recvmmsg(fd.as_raw_fd(), first, count, flags as _, ptr::null_mut()) };
    let Ok(came) = usize::try_from(came) else { return Err(last_error()) };
    Ok(came)
}
