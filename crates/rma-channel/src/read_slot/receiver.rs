//! The receiver's end of read slots that has memory for messages: each lands in a buffer, and stays
//! there until it is given back.
//!
//! The sender's slot is free as soon as the message is here. So a receiver that keeps messages
//! holds up its sender when its buffers and the slots are full.

use std::collections::VecDeque;

use rma_core::{gate::Gate, region::RegisteredRegion, time::Instant};

use super::Joined;
use crate::{
    close::{Close, Registered},
    into::{Finds, IntoReceiver},
    link::Link,
    receiver::{
        Claim, Claims, Ended, ReceiveError, ReceiveHandle, ReceiveInto, ReceiveState, Receiver,
        read,
    },
    ring::{Record, WORD, padded},
    terms::OpenError,
};

/// The end of a receiver with memory of its own, however it finds messages.
#[derive(Debug)]
#[expect(private_bounds, reason = "the three ways to find messages are all there are")]
pub struct SlotReceiver<F: Finds> {
    pub(super) into: IntoReceiver<F>,
    memory: RegisteredRegion,
    /// The offsets of messages in free buffers. Before each there is a word for its bell.
    free: VecDeque<u64>,
    /// The messages that are being received, in order.
    under_way: VecDeque<(ReceiveHandle, Record)>,
    ended: Option<ReceiveError>,
    /// The error that it has reported, if any.
    told: Ended,
}

/// How many buffers a receiver has at most; no more than its sender has slots.
const BUFFERS_MAX: u16 = 16;

/// How far apart buffers are.
const fn stride(len_max: u32) -> u64 {
    WORD + padded(len_max)
}

#[expect(private_bounds, reason = "the three ways to find messages are all there are")]
impl<F: Finds> SlotReceiver<F> {
    pub(super) fn new(
        host: &dyn Gate,
        joined: &Joined,
        into: IntoReceiver<F>,
    ) -> Result<Self, OpenError> {
        let stride = stride(joined.len_max);
        let buffers = u64::from(joined.slots.min(BUFFERS_MAX));
        let memory = super::own(host, buffers * stride)?;
        let free = (0..buffers).map(|buffer| buffer * stride + WORD).collect();
        Ok(Self {
            into,
            memory,
            free,
            under_way: VecDeque::new(),
            ended: None,
            told: Ended::default(),
        })
    }

    /// The region that messages land in.
    #[must_use]
    pub const fn memory(&self) -> &RegisteredRegion {
        &self.memory
    }

    /// Returns the offset of a message in it, from when it was claimed until it is given back.
    #[must_use]
    pub const fn place(&self, claim: &Claim) -> u64 {
        claim.record.offset
    }
}

impl<F: Finds> Close for SlotReceiver<F> {
    fn registered(&mut self) -> &mut Registered {
        &mut self.into.registered
    }
}

#[expect(private_bounds, reason = "the three ways to find messages are all there are")]
impl<F: Finds> SlotReceiver<F> {
    /// The next message, if it has been received.
    fn take(&mut self) -> Result<Option<Claim>, ReceiveError> {
        let Some((handle, _)) = self.under_way.front() else {
            return self.ended.map_or(Ok(None), Err);
        };
        match self.into.state(*handle) {
            ReceiveState::Received => {
                let record = self.under_way.pop_front().map(|(_, record)| record);
                Ok(record.map(|record| Claim { record, from: None }))
            }
            ReceiveState::Failed(error) => Err(error),
            ReceiveState::Receiving => Ok(None),
        }
    }
}

impl<F: Finds> Claims for SlotReceiver<F> {
    fn claim(&mut self) -> Result<Option<Claim>, ReceiveError> {
        self.told.check()?;
        let taken = self.take();
        self.told.keep(taken)
    }

    fn read(&self, claim: &Claim, offset: usize, bytes: &mut [u8]) -> usize {
        read(&self.memory, &claim.record, offset, bytes)
    }

    fn free(&mut self, claim: Claim) {
        self.free.push_back(claim.record.offset);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.into.poll_timeout()
    }
}

impl<F: Finds> Receiver for SlotReceiver<F> {
    fn poll(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        let polled = self.receive(link, now);
        self.ended = self.ended.or(polled.err());
        polled
    }
}

#[expect(private_bounds, reason = "the three ways to find messages are all there are")]
impl<F: Finds> SlotReceiver<F> {
    fn receive(&mut self, link: &mut Link, now: Instant) -> Result<(), ReceiveError> {
        self.into.finds.land(self.free.front().map(|&offset| (&self.memory, offset)));
        self.into.poll(link, now)?;
        let mut is_new = false;
        while let Some(&offset) = self.free.front()
            && let Some(incoming) = ReceiveInto::incoming(&mut self.into)
        {
            let (position, len) = (incoming.position, incoming.len);
            let handle = self.into.receive_into(link, now, incoming, &self.memory, offset)?;
            let Some(handle) = handle else { break };
            self.free.pop_front();
            self.under_way.push_back((handle, Record { position, offset, len }));
            is_new = true;
        }
        if is_new {
            // The message that landed with its bell is there now, and the next look can begin.
            self.into.finds.land(self.free.front().map(|&offset| (&self.memory, offset)));
            self.into.poll(link, now)?;
        }
        Ok(())
    }
}
