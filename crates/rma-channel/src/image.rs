//! The source of messages that have to wait: memory of the application's, or a copy.

use core::ops::Range;

use rma_core::{
    gate::Gate,
    portal::Source,
    region::{Permissions, RegisteredRegion},
};
use rma_shm::Region;

use crate::{
    flow,
    ring::{Position, padded},
    sender::{SendError, checked_place},
    terms::OpenError,
};

/// Memory that messages are copied to: a place for each that may wait, or be under way, at a time.
#[derive(Debug)]
pub(crate) struct Image {
    memory: RegisteredRegion,
    places: u16,
    len_max: u32,
}

/// A message that lies in the image until it has left.
#[derive(Clone, Debug)]
pub(crate) struct Lying {
    /// If not in the image.
    region: Option<RegisteredRegion>,
    offset: u64,
    len: u32,
}

impl Image {
    /// So many places for messages of up to so many bytes.
    pub(crate) fn open(host: &dyn Gate, places: u16, len_max: u32) -> Result<Self, OpenError> {
        let memory = Region::new(usize::from(places) * padded(len_max) as usize)?;
        let memory = flow::region(host, memory, Permissions::NONE)?;
        Ok(Self { memory, places, len_max })
    }

    /// How many places there are.
    pub(crate) const fn places(&self) -> usize {
        self.places as usize
    }

    /// The longest message.
    pub(crate) const fn len_max(&self) -> u32 {
        self.len_max
    }

    /// Copies a message that is no longer than the longest to its place, whose last message has
    /// left.
    pub(crate) fn copy(&self, number: Position, message: &[u8]) -> Lying {
        let offset = number.to_bits() % u64::from(self.places) * padded(self.len_max);
        // It is within the image.
        let _ = self.memory.write(offset, message);
        Lying { region: None, offset, len: message.len() as u32 }
    }

    /// The message in `range` of a region of the application's, which stays there, if there can be
    /// one.
    pub(crate) fn at(
        &self,
        region: &RegisteredRegion,
        range: &Range<u64>,
    ) -> Result<Lying, SendError> {
        let len = checked_place(region, range, 0, 0, self.len_max)?;
        Ok(Lying { region: Some(region.clone()), offset: range.start, len })
    }

    /// From which region to send a message, from where on, and how many bytes.
    pub(crate) fn source<'a>(&'a self, it: &'a Lying) -> Source<'a> {
        let region = it.region.as_ref().unwrap_or(&self.memory);
        Source { region, offset: it.offset, len: it.len }
    }
}
