//! Datagrams in batches: several in one call of `recvmmsg` and `sendmmsg`.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::UdpSocket,
    os::fd::AsRawFd,
};

use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg, sendmmsg};

use super::end::End;

/// The most datagrams in a call.
const BATCH: usize = 32;

/// A connected socket whose datagrams have one length in either direction.
pub(super) struct Batched {
    socket: UdpSocket,
    sent_len: usize,
    received_len: usize,
    /// Datagrams to be sent, one behind the other.
    waiting: Vec<u8>,
    headers: MultiHeaders<()>,
}

impl Batched {
    pub(super) fn new(socket: UdpSocket, sent_len: usize, received_len: usize) -> Self {
        let headers = MultiHeaders::preallocate(BATCH, None);
        Self { socket, sent_len, received_len, waiting: Vec::new(), headers }
    }
}

impl End for Batched {
    fn put(&mut self, message: &[u8]) -> io::Result<usize> {
        if message.len() != self.sent_len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.waiting.extend_from_slice(message);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let mut datagrams = self.waiting.chunks_exact(self.sent_len);
            let count = datagrams.len().min(BATCH);
            let slices: [_; BATCH] =
                core::array::from_fn(|_| [IoSlice::new(datagrams.next().unwrap_or_default())]);
            let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
            let (slices, nowhere) = (slices[..count].iter(), [None::<()>; BATCH]);
            let sent = sendmmsg(fd, &mut self.headers, slices, nowhere, [], flags)?.count();
            self.waiting.drain(..sent * self.sent_len);
        }
        Ok(())
    }

    fn get(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut places = into.chunks_exact_mut(self.received_len);
        let count = places.len().min(BATCH);
        let mut slices: [_; BATCH] =
            core::array::from_fn(|_| [IoSliceMut::new(places.next().unwrap_or_default())]);
        let (fd, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
        let slices = slices[..count].iter_mut();
        let received = recvmmsg(fd, &mut self.headers, slices, flags, None)?;
        let mut all = 0;
        for datagram in received {
            if datagram.bytes != self.received_len {
                return Err(io::ErrorKind::InvalidData.into());
            }
            all += datagram.bytes;
        }
        Ok(all)
    }
}
