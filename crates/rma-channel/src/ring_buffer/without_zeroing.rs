//! Ring buffer, inlined bell without zeroing (§4.3): the sender clears the bell of the message that
//! comes next, and the receiver writes nothing.
//!
//! The paper needs messages in order, which one-sided ops are not here. So what is sent while an
//! op is under way gathers, and goes as one run of records: one ordered WRITE if one op can carry
//! it, or else its bytes in parallel, with those of other runs, and then one word on top, when the
//! bytes of its own run and of the run before it have landed. (The word that ends the run before is
//! 0, and lies where this one's bell goes: it must land first.)

use core::ops::Range;
use std::collections::VecDeque;

use rma_core::{
    executor::{Call, CallId, OpCall, Piece},
    grant::Grant,
    limits::OP_SIZE_MAX,
    portal::{Change, CommandPortal, Source},
    region::RegisteredRegion,
    time::Instant,
};

use super::sending::{SenderParts, Sending, refused};
use crate::{
    flow::Teller,
    link::Link,
    ring::{
        Position, RingLen,
        without_zeroing::{Reader, Run, Writer},
    },
    sender::{SendError, SendHandle, SendState},
};

/// The receiver's end.
pub type Receiver = super::Receiver<Reader>;

impl Receiver {
    /// As the receiver's end [with zeroing](super::with_zeroing::Receiver::new).
    #[must_use]
    pub fn new(
        ring: RegisteredRegion,
        len: RingLen,
        len_max: u32,
        (grant, word): (Grant, RegisteredRegion),
    ) -> Self {
        Self::over(Reader::new(ring, len, len_max), Teller::new(grant, word, len))
    }
}

/// The sender's end.
#[derive(Debug)]
pub struct Sender {
    parts: SenderParts,
    writer: Writer,
    sending: Sending,
    /// Runs whose bytes are under way, or have landed, and whose bells have not been issued.
    bells: VecDeque<Run>,
}

impl Sender {
    /// Of a ring that is empty.
    #[must_use]
    pub fn new(parts: SenderParts) -> Self {
        let writer = Writer::new(parts.image.clone(), parts.len, parts.len_max);
        Self { parts, writer, sending: Sending::default(), bells: VecDeque::new() }
    }

    /// Takes what became of messages, and issues what has gathered, if it is time. After
    /// [`Link::poll`].
    ///
    /// # Errors
    /// If the receiver tells what cannot be, or a message has failed.
    pub fn poll<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
    ) -> Result<(), SendError> {
        self.sending.poll(link, &self.parts.tail, self.writer.room())?;
        self.issue(link, now).or_else(later)
    }

    /// Sends a message: it is copied into the ring's image, and goes at once if nothing is under
    /// way, or else with those that gather.
    ///
    /// # Errors
    /// If it cannot be, if there is no room, or a message before it has failed. Then nothing was
    /// taken; but after [`SendError::Call`] the message is among those that gather, and the link is
    /// asked again with each poll.
    pub fn send<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
        message: &[u8],
    ) -> Result<SendHandle, SendError> {
        let (len, max) = (message.len(), self.parts.len_max);
        if len == 0 || len > max as usize {
            return Err(SendError::Len { len, max });
        }
        self.sending.check()?;
        let position = self.writer.add(message).ok_or(SendError::Full)?;
        self.issue(link, now).or_else(later)?;
        Ok(SendHandle(position))
    }

    /// Issues what has gathered: if nothing is under way, or it is more than one op can carry. And
    /// the bells of runs whose bytes have landed.
    fn issue<P: AsMut<CommandPortal>>(
        &mut self,
        link: &mut Link<P>,
        now: Instant,
    ) -> Result<(), SendError> {
        self.sending.check()?;
        while let Some(run) =
            self.bells.front().filter(|run| Some(run.position) == self.sending.ready())
        {
            self.writer.set_bell(run);
            let call = self.ordered(link, now, run, run.bell())?;
            self.sending.ring(run.position, call);
            self.bells.pop_front();
        }
        let (gathered, is_busy) = (self.writer.gathered(), self.sending.under_way() > 0);
        let is_large = gathered > OP_SIZE_MAX.into();
        if gathered == 0 || is_busy && !is_large {
            return Ok(());
        }
        let Some(run) = self.writer.take_run() else { return Ok(()) };
        let submitted = if is_large {
            self.body(link, now, &run)
        } else {
            // Nothing is under way: nothing carries the bell as 0.
            self.writer.set_bell(&run);
            self.ordered(link, now, &run, 0..run.len)
        };
        match submitted {
            Ok(call) if is_large => {
                self.sending.begin(run.positions(), call);
                self.bells.push_back(run);
            }
            Ok(call) => self.sending.publish(run.positions(), call),
            Err(error) => {
                // Its messages go with those that come.
                self.writer.untake_run(&run);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Issues the bytes of a run, but for its bell.
    fn body<P: AsMut<CommandPortal>>(
        &self,
        link: &mut Link<P>,
        now: Instant,
        run: &Run,
    ) -> Result<CallId, SendError> {
        let SenderParts { grant, image, .. } = &self.parts;
        let (at, len) = (run.remote_offset, run.body().end);
        let piece = Piece { grant, remote_offset: at, local: image, local_offset: at, len };
        link.submit(now, &Call::of(core::slice::from_ref(&piece))).map_err(refused)
    }

    /// Issues an ordered WRITE of a part of a run.
    fn ordered<P: AsMut<CommandPortal>>(
        &self,
        link: &mut Link<P>,
        now: Instant,
        run: &Run,
        range: Range<u64>,
    ) -> Result<CallId, SendError> {
        let offset = run.remote_offset + range.start;
        let len = (range.end - range.start) as u32;
        let source = Source { region: &self.parts.image, offset, len };
        let change = Change::OrderedWrite { remote_offset: offset, source };
        link.submit_op(now, &OpCall::of(&self.parts.grant, change)).map_err(refused)
    }

    /// What became of a message.
    #[must_use]
    pub fn test(&mut self, handle: SendHandle) -> SendState {
        self.sending.test(handle.0, self.writer.room())
    }

    /// Up to where the receiver has processed messages, as far as is known.
    #[must_use]
    pub fn tail(&mut self) -> Position {
        self.writer.room().tail()
    }
}

/// What the link has no room for now goes with a later poll.
fn later(error: SendError) -> Result<(), SendError> {
    if error == SendError::Full { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests;
