//! Ring buffer, inlined bell without zeroing (§4.3): the sender clears the bell of the message that
//! comes next, and the receiver writes nothing.
//!
//! The paper needs messages in order, which one-sided ops are not here. So what is sent while an
//! op is under way gathers, and goes as one run of records. If nothing is under way any more and
//! one op can carry it, that is one ordered WRITE. Or else, and as soon as much has gathered, its
//! bytes go in parallel, with those of other runs, and then one word on top, when the bytes of its
//! own run and of the run before it have landed. (The word that ends the run before is 0, and lies
//! where this one's bell goes: it must land first.)

use core::ops::Range;
use std::collections::VecDeque;

use rma_core::{
    executor::{Call, CallId, OpCall, Piece},
    gate::Gate,
    limits::OP_SIZE_MAX,
    op::OpType,
    portal::{Change, Source},
    region::RegisteredRegion,
    time::Instant,
};

use super::{
    RingConfig, RingReceiver, SenderParts, open_inlined, open_sender,
    sender::{RingSender, Writes},
};
use crate::{
    close::opened,
    link::Link,
    ring::{
        Room, WORD,
        without_zeroing::{Reader, Run, Writer, footprint},
    },
    sender::{self, SendError, SendHandle, SendRegion, checked_len, checked_place, refused},
    table::Kind,
    terms::{Half, OpenError},
};

/// How much gathers at most while something is under way, in bytes: four ops' worth, unless one
/// message is longer. Two ops under way carried 1.35, 1.55, 2.06 and 2.2 million messages of 64 B
/// a second with one, two, four and eight; eight ops 1.95, 2.1, 2.66 and 2.76.
const RUN_MAX: u64 = 4 * OP_SIZE_MAX as u64;

/// The receiver's end.
pub type Receiver = RingReceiver<Reader>;

impl Receiver {
    /// Opens a receiver's end: a ring that is empty.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            let RingConfig { len, len_max, .. } = config;
            config.check(footprint(len_max) + WORD)?;
            let reader = |ring| Reader::new(ring, len, len_max);
            open_inlined(host, config, Kind::RingWithoutZeroing, reader)
        })
    }
}

/// The sender's end.
pub type Sender = RingSender<Runs>;

/// Messages that gather, and go as runs.
#[derive(Debug)]
pub struct Runs {
    writer: Writer,
    bells: VecDeque<Bell>,
}

/// The bell of a run whose bytes are under way, or have landed: it has not been issued.
#[derive(Debug)]
struct Bell {
    run: Run,
    /// From where in the run on it is issued.
    start: u64,
    /// The place of the run, if not in the image.
    elsewhere: Option<(RegisteredRegion, u64)>,
}

impl Sender {
    /// Opens a sender's end: a ring that is empty.
    ///
    /// # Errors
    /// If a message of the greatest length has no place in the ring, or the host has no room.
    pub fn open(host: &dyn Gate, config: RingConfig) -> Result<Half<Self>, OpenError> {
        opened(host, |host| {
            config.check(footprint(config.len_max) + WORD)?;
            open_sender(host, config, Kind::RingWithoutZeroing, &[OpType::Write], |parts, _| {
                Runs::new(parts)
            })
        })
    }

    /// Issues the bells of runs whose bytes have landed.
    fn ring(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        while let Some(bell) = self.writes.bells.front()
            && self.sending.ready() == Some(bell.run.position)
        {
            if bell.elsewhere.is_none() {
                self.writes.writer.set_bell(&bell.run);
            }
            let (position, call) = (bell.run.position, self.ordered(link, now, bell)?);
            self.sending.ring(position, call);
            self.writes.bells.pop_front();
        }
        Ok(())
    }

    /// Issues what has gathered: if nothing is under way, or it is more than may gather, or it
    /// `must` go. And the bells of runs whose bytes have landed.
    fn issue(&mut self, link: &mut Link, now: Instant, must: bool) -> Result<(), SendError> {
        self.sending.check()?;
        self.ring(link, now)?;
        let (gathered, is_busy) = (self.writes.writer.gathered(), self.sending.under_way() > 0);
        let is_large = gathered > u64::from(OP_SIZE_MAX);
        if gathered == 0 || is_busy && !must && gathered <= RUN_MAX {
            return Ok(());
        }
        let Some(run) = self.writes.writer.take_run() else { return Ok(()) };
        // If nothing is under way, nothing carries the bell as 0.
        if !is_busy && !is_large {
            self.writes.writer.set_bell(&run);
        }
        let issued = self.write(link, now, run, None, is_busy || is_large);
        if issued.is_err() {
            // Its messages go with those that come.
            self.writes.writer.untake_run(&run);
        }
        issued
    }

    /// Issues a run that stands in the image, or `elsewhere`: at once if it is whole with one op,
    /// or else its bytes, and its bell later (`in_two`).
    fn write(
        &mut self,
        link: &mut Link,
        now: Instant,
        run: Run,
        elsewhere: Option<(RegisteredRegion, u64)>,
        in_two: bool,
    ) -> Result<(), SendError> {
        let mut bell = Bell { run, start: 0, elsewhere };
        if in_two {
            let (grant, remote_offset) = (&self.parts.grant, run.remote_offset);
            let (local, local_offset) = self.place(&bell);
            let len = run.split(link.last_op_len(grant, run.len));
            let piece = Piece { grant, remote_offset, local, local_offset, len };
            let call = Call::of(core::slice::from_ref(&piece));
            let call = link.submit(now, &call).map_err(refused)?;
            self.sending.begin(run.positions(), call);
            bell.start = len;
            self.writes.bells.push_back(bell);
        } else {
            let call = self.ordered(link, now, &bell)?;
            self.sending.publish(run.positions(), call);
        }
        Ok(())
    }

    /// Returns where the run of a bell lies.
    fn place<'a>(&'a self, Bell { run, elsewhere, .. }: &'a Bell) -> (&'a RegisteredRegion, u64) {
        let image = (&self.parts.image, run.remote_offset);
        elsewhere.as_ref().map_or(image, |(region, offset)| (region, *offset))
    }

    /// Issues an ordered WRITE of a bell's run, from the bell's start on.
    fn ordered(&self, link: &mut Link, now: Instant, bell: &Bell) -> Result<CallId, SendError> {
        let (&Bell { run, start, .. }, (region, offset)) = (bell, self.place(bell));
        let source = Source { region, offset: offset + start, len: (run.len - start) as u32 };
        let remote_offset = run.remote_offset + start;
        let change = Change::OrderedWrite { remote_offset, source };
        link.submit_op(now, &OpCall::of(&self.parts.grant, change)).map_err(refused)
    }
}

impl Runs {
    fn new(parts: &SenderParts) -> Self {
        let writer = Writer::new(parts.image.clone(), parts.len, parts.len_max);
        Self { writer, bells: VecDeque::new() }
    }
}

impl Writes for Runs {
    const BESIDE: (u64, u64) = (WORD, WORD);

    fn room(&self) -> &Room {
        self.writer.room()
    }
}

impl sender::Sender for Sender {
    /// The message goes at once if nothing is under way, or else with those that gather. After
    /// [`SendError::Call`] it is among those that gather, and the link is asked again with each
    /// poll.
    fn send(
        &mut self,
        link: &mut Link,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        let len = checked_len(message.len(), self.parts.len_max)?;
        self.sending.check()?;
        let gathered = self.writes.writer.gathered();
        if gathered > 0 && gathered + footprint(len) > RUN_MAX {
            self.issue(link, now, true).or_else(later)?;
        }
        let position = self.writes.writer.add(message).ok_or(SendError::Full)?;
        link.count_copied(message.len());
        self.issue(link, now, false).or_else(later)?;
        Ok(SendHandle(position))
    }

    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), SendError> {
        self.sending.poll(link, &self.parts.tail, self.writes.writer.room_mut())?;
        self.issue(link, now, false).or_else(later)
    }
}

impl SendRegion for Sender {
    /// The message is a run by itself: one op if nothing is under way, or else two, as is what has
    /// gathered before it.
    fn send_region(
        &mut self,
        link: &mut Link,
        now: Instant,
        region: &RegisteredRegion,
        range: Range<u64>,
    ) -> Result<SendHandle, SendError> {
        let len = checked_place(region, &range, WORD, WORD, self.parts.len_max)?;
        self.issue(link, now, true)?;
        let is_busy = self.sending.under_way() > 0;
        let run = self.writes.writer.take_place(len).ok_or(SendError::Full)?;
        let (start, end) = (range.start - WORD, range.start + u64::from(len));
        // The place was checked.
        let _ = region.store(start, 0);
        let _ = region.write(end, &[0; WORD as usize][..(start + run.bell_word() - end) as usize]);
        let _ = region.store(start + run.bell_word(), run.bell);
        let in_two = is_busy || run.len > OP_SIZE_MAX.into();
        let elsewhere = Some((region.clone(), start));
        let issued = self.write(link, now, run, elsewhere, in_two);
        if let Err(error) = issued {
            self.writes.writer.untake_place(&run);
            return Err(error);
        }
        Ok(SendHandle(run.position))
    }
}

/// Accepts a refusal for lack of room in the link: a later poll goes on.
fn later(error: SendError) -> Result<(), SendError> {
    if error == SendError::Full { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests;
