//! A receiver's search for messages in a ring that it reads into the application's memory: it READs
//! the first word of each record, which says the record's length.

use core::time::Duration;
use std::collections::VecDeque;

use rma_core::{gate::Gate, grant::Grant, time::Instant};
use rma_shm::Region;

use super::{
    ReadRingConfig,
    receiver::{self, At, Image, Look, Pace, parts},
    records::{footprint, record},
};
use crate::{
    into::{Fault, Finds, Found, IntoReceiver},
    link::Link,
    reading::submit,
    receiver::ReceiveError,
    ring::{Malformed, Position, WORD, word_at},
    terms::OpenError,
};

/// A receiver that reads into the application's memory, with the same grants. Without a look it
/// asks for first words of records every so often.
pub(super) fn join_into<L: Look>(
    host: &dyn Gate,
    config: ReadRingConfig,
    grants: &[Grant],
    every: Duration,
    look: Option<L>,
) -> Result<IntoReceiver<RecordFinds<L>>, OpenError> {
    let (image, reading) = parts(host, config, grants, Region::new(WORD as usize)?)?;
    let grant = image.grant;
    let finds = RecordFinds::new(look, image, Pace::new(every));
    Ok(IntoReceiver::new(finds, grant, reading))
}

/// Finds records by their first words.
#[derive(Debug)]
#[expect(private_bounds, reason = "the three kinds of looks are all there are")]
pub struct RecordFinds<L: Look> {
    /// The source of news about records, if not their first words.
    pub(super) look: Option<L>,
    /// Of which the memory is one word, where first words land.
    pub(super) image: Image,
    pub(super) pace: Pace,
    next: Position,
    /// Up to where records are known to be.
    known: Position,
}

#[expect(private_bounds, reason = "the three kinds of looks are all there are")]
impl<L: Look> RecordFinds<L> {
    pub(super) const fn new(look: Option<L>, image: Image, pace: Pace) -> Self {
        Self { look, image, pace, next: Position::ZERO, known: Position::ZERO }
    }

    /// Takes the first word of the next record, if it has been read: when that was issued, and
    /// where the record ends, if it is one.
    fn take_word(
        &mut self,
        link: &mut Link,
        tail: Position,
    ) -> Result<Option<(Instant, Option<Found>)>, Fault> {
        let Some(issued) = self.pace.take(link)? else { return Ok(None) };
        let Image { memory, ring, len_max, capacity, .. } = &self.image;
        let (position, word) = (self.next, word_at(memory, 0));
        let len = record(word, *ring, *len_max, position).map_err(Fault::Malformed)?;
        self.pace.found(issued, len.is_some());
        let Some(len) = len else { return Ok(Some((issued, None))) };
        let (end, at) = (position.after(footprint(len)), At { known: position, tail });
        if !at.can_be(end, *capacity) {
            let (told, from) = (end.to_bits(), tail.to_bits());
            return Err(Fault::Malformed(Malformed::Head { told, from }));
        }
        let remote_offset = ring.offset(position) + WORD;
        Ok(Some((issued, Some(Found { position, end, remote_offset, len, landed: false }))))
    }

    fn look(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let remote_offset = self.image.ring.offset(self.next);
        let piece = self.image.piece(Position::ZERO, WORD);
        let call = submit(link, now, &rma_core::executor::Piece { remote_offset, ..piece })?;
        self.pace.began(call, now);
        Ok(())
    }
}

impl<L: Look> Finds for RecordFinds<L> {
    const ASKS: bool = L::ASKS;

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.look {
            // The first word of a known record is read next.
            Some(look) => look.poll_timeout().filter(|_| self.next == self.known),
            None => self.pace.poll_timeout(),
        }
    }

    fn begin(&mut self, start: Position) {
        (self.next, self.known) = (start, start);
    }

    fn poll(
        &mut self,
        link: &mut Link,
        now: Instant,
        tail: Position,
        found: &mut VecDeque<Found>,
    ) -> Result<Option<Instant>, Fault> {
        let mut nothing = None;
        if let Some((issued, it)) = self.take_word(link, tail)? {
            match it {
                Some(it) => {
                    found.push_back(it);
                    self.next = it.end;
                }
                None if self.look.is_none() => nothing = Some(issued),
                None => {
                    let (told, from) = (self.known.to_bits(), self.next.to_bits());
                    return Err(Fault::Malformed(Malformed::Head { told, from }));
                }
            }
        }
        let at = At { known: self.known, tail };
        let Some(look) = &mut self.look else {
            if self.pace.is_time(now) {
                self.look(link, now)?;
            }
            return Ok(nothing);
        };
        match look.take(link, &self.image, at)? {
            None => {}
            Some(receiver::Found::Nothing(issued)) => nothing = Some(issued),
            Some(receiver::Found::Known { known, .. }) => self.known = known,
        }
        if self.next == self.known {
            look.begin(link, now, &self.image, At { known: self.known, tail })?;
        } else if self.pace.is_time(now) {
            self.look(link, now)?;
        }
        Ok(nothing)
    }
}
