//! The settings of a channel of any kind.

use core::time::Duration;

use rma_core::gate::Peer;

use crate::{
    read_ring::{ReadRingConfig, ReaderConfig},
    read_slot::{ReadSlotConfig, SLOTS_MAX, indirect_read::IndirectConfig},
    ring::{RingLen, padded},
    ring_buffer::RingConfig,
    send_recv::{SendRecvConfig, SharedConfig},
    shared_ring::SharedRingConfig,
    write_slot::{SlotConfig, reserve_slot::ReserveConfig},
};

/// The settings that both ends of a channel of any kind are opened with. Each kind takes those that
/// it has; what only one kind can do is set where that kind is opened by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct ChannelConfig {
    /// The application's name for the channel: whatever tells it from others between the two.
    pub name: u64,
    /// The longest message, in bytes. A bufferless send is a word, whatever stands here.
    pub len_max: u32,
    /// How many of the longest messages there is room for: slots, receives or buffers. Read slots
    /// have 128 at most.
    pub messages: u16,
    /// The length of a ring, if the kind has one. `None`: as long as the messages are with what
    /// records have besides, if a ring can be so long.
    pub ring: Option<RingLen>,
    /// How many peers an end admits at most, if it has memory for each: receivers that read (14 to
    /// 16, 18 to 20), senders that are lent buffers (17).
    pub peers: u16,
    /// For how long a receiver that reads counts although it tells nothing.
    pub reader_timeout: Duration,
    /// How long such a receiver waits after a look that found nothing until the next.
    pub every: Duration,
    /// How many bytes it reads beyond a bell, if bells are inlined in a ring (19).
    pub prefetch: u32,
    /// Whether the bell of a write slot is an event (4), so that its receiver may sleep.
    pub wakes: bool,
    /// DISPATCH_TIMEOUT of the NICs of all hosts that take part, the longest of them: where senders
    /// reserve places (7, 12, 13) a place is taken back when a sender that lives would have used
    /// it, for messages of one op; for longer ones there are the kinds' own settings. Default: that
    /// of a host.
    pub dispatch_timeout: Duration,
    /// TIMEOUT of these NICs, likewise.
    pub timeout: Duration,
}

/// The bytes of a ring's record besides its message at most, padding included.
const RECORD: u64 = 16;

impl ChannelConfig {
    /// Settings with room for so many messages of up to `len_max` bytes, and eight peers at most.
    pub fn new(len_max: u32, messages: u16) -> Self {
        let SharedRingConfig { dispatch_timeout, timeout, .. } = SharedRingConfig::new();
        Self {
            name: 0,
            len_max,
            messages,
            ring: None,
            peers: 8,
            reader_timeout: Duration::from_secs(10),
            every: Duration::ZERO,
            prefetch: 0,
            wakes: false,
            dispatch_timeout,
            timeout,
        }
    }

    /// The length of a ring for records of `each` bytes, with some `beside` them all.
    fn ring_len(&self, each: u64, beside: u64) -> RingLen {
        let len = (u64::from(self.messages) * each + beside).next_power_of_two();
        let len = RingLen::new(len.clamp(RingLen::MIN, RingLen::MAX));
        self.ring.unwrap_or_else(|| len.expect("a power of two, not too short or long"))
    }

    /// The length of a ring that a sender writes into: records begin anywhere in it.
    fn pushed_len(&self) -> RingLen {
        self.ring_len((u64::from(self.len_max) + RECORD).next_multiple_of(64), 0)
    }

    pub(super) fn send_recv(&self, peer: Peer) -> SendRecvConfig {
        SendRecvConfig::with_peer(peer).with(|it| {
            (it.name, it.receives, it.len_max) = (self.name, self.messages, self.len_max);
        })
    }

    pub(super) fn shared(&self) -> SharedConfig {
        SharedConfig::DEFAULT.with(|it| {
            (it.name, it.receives, it.len_max) = (self.name, self.messages, self.len_max);
        })
    }

    pub(super) fn slots(&self, peer: Peer) -> SlotConfig {
        SlotConfig::with_peer(peer).with(|it| {
            (it.name, it.slots, it.len_max) = (self.name, self.messages, self.len_max);
        })
    }

    pub(super) fn reserve(&self) -> ReserveConfig {
        let Self { dispatch_timeout, timeout, .. } = *self;
        ReserveConfig::new().with(|it| {
            (it.name, it.slots, it.len_max) = (self.name, self.messages, self.len_max);
            it.hole_timeout = ReserveConfig::hole_timeout_min(dispatch_timeout, timeout);
        })
    }

    pub(super) fn ring(&self, peer: Peer) -> RingConfig {
        RingConfig::with_peer(peer).with(|it| {
            (it.name, it.len, it.len_max) = (self.name, self.pushed_len(), self.len_max);
            // Messages that are shorter than the longest take a receive each, too.
            it.messages = it.messages.max(self.messages);
        })
    }

    pub(super) fn shared_ring(&self) -> SharedRingConfig {
        let Self { dispatch_timeout, timeout, .. } = *self;
        SharedRingConfig::new().with(|it| {
            (it.name, it.len, it.len_max) = (self.name, self.pushed_len(), self.len_max);
            (it.dispatch_timeout, it.timeout) = (dispatch_timeout, timeout);
            it.hole_timeout = SharedRingConfig::hole_timeout_min(dispatch_timeout, timeout);
        })
    }

    /// Read slots with room for the messages, and twice as many bells where short messages take
    /// less room than long ones.
    pub(super) fn read_slots(&self, is_variable: bool) -> ReadSlotConfig {
        let messages = self.messages.min(SLOTS_MAX);
        let bells = messages.saturating_mul(1 + u16::from(is_variable));
        ReadSlotConfig::default().with(|it| {
            (it.name, it.slots) = (self.name, bells.min(SLOTS_MAX));
            it.len_max = self.len_max;
            it.copies = u32::try_from(u64::from(messages) * padded(self.len_max)).unwrap_or(!7);
            (it.readers, it.reader_timeout) = (self.peers, self.reader_timeout);
        })
    }

    pub(super) fn read_ring(&self) -> ReadRingConfig {
        // What stays zero beyond the newest record has no room for messages.
        let (each, zero) = (u64::from(self.len_max) + RECORD, u64::from(self.prefetch) + RECORD);
        ReadRingConfig::default().with(|it| {
            (it.name, it.len, it.len_max) = (self.name, self.ring_len(each, zero), self.len_max);
            (it.prefetch, it.readers) = (self.prefetch, self.peers);
            it.reader_timeout = self.reader_timeout;
        })
    }

    pub(super) fn reader(&self) -> ReaderConfig {
        ReaderConfig::new().with(|it| {
            (it.name, it.every, it.prefetch) = (self.name, self.every, self.prefetch);
        })
    }

    pub(super) fn indirect(&self) -> IndirectConfig {
        IndirectConfig::default().with(|it| {
            (it.name, it.len_max, it.senders) = (self.name, self.len_max, self.peers);
            it.buffers = self.messages.max(self.peers);
            it.lent = it.lent.min(self.messages);
        })
    }
}

rma_core::settings!(ChannelConfig);
