//! Puts a packet that came in several chunks together in one buffer.
//!
//! Only packets of more than one chunk come here. Invariant: a packet is handed out whole or not at
//! all, whatever bursts its chunks are spread over; the buffer never grows.

/// The result of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Linear<'a> {
    /// More chunks of the packet will come.
    More,
    /// The packet is complete.
    Packet(&'a mut [u8]),
    /// The packet was longer than the buffer; this was its last chunk.
    TooLong,
}

/// The buffer, and how much of a packet is in it.
#[derive(Debug)]
pub(super) struct Linearizer {
    buffer: Box<[u8]>,
    len: usize,
    /// In the middle of a packet.
    started: bool,
    too_long: bool,
}

impl Linearizer {
    /// For packets of at most `capacity` bytes.
    pub(super) fn new(capacity: usize) -> Self {
        let buffer = vec![0; capacity].into_boxed_slice();
        Self { buffer, len: 0, started: false, too_long: false }
    }

    /// Whether the next chunk starts a packet.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        !self.started
    }

    /// Adds the next chunk; the packet goes on if it is `continued`.
    pub(super) fn push(&mut self, chunk: &[u8], continued: bool) -> Linear<'_> {
        if !self.started {
            (self.len, self.started, self.too_long) = (0, true, false);
        }
        match self.buffer[self.len..].get_mut(..chunk.len()) {
            Some(room) if !self.too_long => {
                room.copy_from_slice(chunk);
                self.len += chunk.len();
            }
            _ => self.too_long = true,
        }
        self.started = continued;
        match (continued, self.too_long) {
            (true, _) => Linear::More,
            (false, true) => Linear::TooLong,
            (false, false) => Linear::Packet(&mut self.buffer[..self.len]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_become_one_packet() {
        let mut linear = Linearizer::new(8);
        for _ in 0..2 {
            assert!(linear.is_idle());
            assert_eq!(linear.push(b"abc", true), Linear::More);
            assert!(!linear.is_idle());
            assert_eq!(linear.push(b"def", true), Linear::More);
            assert_eq!(linear.push(b"gh", false), Linear::Packet(&mut b"abcdefgh".to_owned()));
        }
    }

    #[test]
    fn a_packet_that_is_too_long_is_dropped_whole_and_the_next_is_not() {
        let mut linear = Linearizer::new(4);
        assert_eq!(linear.push(b"abc", true), Linear::More);
        assert_eq!(linear.push(b"def", true), Linear::More);
        // It would fit by itself, but it belongs to the packet that is too long.
        assert_eq!(linear.push(b"g", false), Linear::TooLong);
        assert_eq!(linear.push(b"hi", true), Linear::More);
        assert_eq!(linear.push(b"jk", false), Linear::Packet(&mut b"hijk".to_owned()));
    }
}
