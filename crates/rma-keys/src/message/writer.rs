//! The same CBOR, written: numbers as short as can be, lengths definite, keys ascending.
//!
//! A reply holds keys, so its buffer is erased when it is dropped, and is made large enough at
//! once: one that grows leaves what it had behind.

use core::{convert::Infallible, time::Duration};

use minicbor::encode::{Encoder, Write};
use zeroize::Zeroizing;

use crate::{
    epoch::Epoch,
    limits::{MESSAGE_LEN_MAX, VERSION},
    secret::Octets,
};

/// A buffer that does not grow.
struct Buffer(Zeroizing<Vec<u8>>);

impl Write for Buffer {
    type Error = Infallible;

    fn write_all(&mut self, octets: &[u8]) -> Result<(), Infallible> {
        let room = self.0.capacity() - self.0.len();
        assert!(octets.len() <= room, "the limits of what is in a message bound its length");
        self.0.extend_from_slice(octets);
        Ok(())
    }
}

/// Writes one message.
pub(super) struct Writer(Encoder<Buffer>);

/// The invariant: writing into memory does not fail.
const NO_ERROR: &str = "writing into memory does not fail";

impl Writer {
    /// Begins a message of `fields` fields besides its version, and at most `len` octets.
    pub(super) fn new(len: usize, fields: u64) -> Self {
        let buffer = Buffer(Zeroizing::new(Vec::with_capacity(len.min(MESSAGE_LEN_MAX))));
        let mut writer = Self(Encoder::new(buffer));
        writer.map(1 + fields).field(0).number(VERSION);
        writer
    }

    /// The whole message.
    pub(super) fn finish(self) -> Octets {
        self.0.into_writer().0.into()
    }

    /// Begins a map of `len` fields.
    pub(super) fn map(&mut self, len: u64) -> &mut Self {
        self.0.map(len).expect(NO_ERROR);
        self
    }

    /// Begins a list of `len` entries.
    pub(super) fn list(&mut self, len: usize) -> &mut Self {
        self.0.array(len as u64).expect(NO_ERROR);
        self
    }

    /// Begins the field with this key.
    pub(super) fn field(&mut self, key: u64) -> &mut Self {
        self.number(key)
    }

    pub(super) fn number(&mut self, value: u64) -> &mut Self {
        self.0.u64(value).expect(NO_ERROR);
        self
    }

    pub(super) fn millis(&mut self, value: Duration) -> &mut Self {
        self.number(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.0.str(text).expect(NO_ERROR);
        self
    }

    pub(super) fn octets(&mut self, octets: &[u8]) -> &mut Self {
        self.0.bytes(octets).expect(NO_ERROR);
        self
    }

    /// An epoch, as two fields of a map that has begun.
    pub(super) fn epoch(&mut self, epoch: Epoch) -> &mut Self {
        self.field(0).octets(&epoch.life.0).field(1).number(epoch.number)
    }
}
