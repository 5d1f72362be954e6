//! The counters of StaR. One thread writes, any thread may read.

use rma_core::tally::Tally;

/// The reason why a frame died. Nobody is told, unless the variant says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StarDrop {
    /// It is no frame that this version defines.
    Malformed,
    /// It came to the port of the other side's processing, or names this host as what it is not.
    WrongPort,
    /// It is not for an address of this host.
    NotForThisHost,
    /// It names a protection domain, or a portal, that there is not.
    UnknownPd,
    /// It names a connection that the stateful side does not have.
    UnknownConnection,
    /// Its tag is wrong under the key that its header has.
    Unauthenticated,
    /// It is an answer to nothing that is under way.
    LateOrUnsolicited,
    /// A table that would have to remember it, or to answer it, is full. It is sent again.
    NoRoom,
    /// The same frame has landed before.
    Again,
    /// A work request of the stateless side that is not the next of its queue.
    OutOfSequence,
    /// The content is not understood, or makes no sense.
    Nonsense,
}

impl StarDrop {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::WrongPort,
        Self::NotForThisHost,
        Self::UnknownPd,
        Self::UnknownConnection,
        Self::Unauthenticated,
        Self::LateOrUnsolicited,
        Self::NoRoom,
        Self::Again,
        Self::OutOfSequence,
        Self::Nonsense,
    ];
}

/// A further event that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StarEvent {
    /// A frame was received.
    FrameReceived,
    /// A frame was sent.
    FrameSent,
    /// A frame was sent once more: its first copy was not answered in time.
    Retransmit,
    /// An authentic frame had expired, or was to expire too late: its sender is told the time.
    Expired,
    /// An authentic frame was for a connection that is closed: its sender is told.
    Gone,
    /// An authentic frame named memory that its connection may not touch: its sender is told.
    Denied,
    /// Data of a WRITE landed after its frame had expired: this host was stopped in between.
    LateEffect,
    /// A post of an application made no sense.
    PostRefused,
    /// A connection did not begin of which this host was to be the stateful side: the application
    /// has as many as it may have, or there is no room, or its record makes no sense.
    OpenRefused,
    /// A report had no room, as an application does not keep to the rules of its portal.
    ReportLost,
    /// A connection has a new stateful side: the peer, which this host has given it to.
    RolesChanged,
    /// A frame had to wait, as no value of the message counter was left.
    SealRefused,
}

impl StarEvent {
    /// All events.
    pub const ALL: [Self; 12] = [
        Self::FrameReceived,
        Self::FrameSent,
        Self::Retransmit,
        Self::Expired,
        Self::Gone,
        Self::Denied,
        Self::LateEffect,
        Self::PostRefused,
        Self::OpenRefused,
        Self::ReportLost,
        Self::RolesChanged,
        Self::SealRefused,
    ];
}

/// Counters of one host's StaR, written by the engine thread alone.
#[derive(Debug, Default)]
pub struct StarCounters {
    drops: [Tally; StarDrop::ALL.len()],
    events: [Tally; StarEvent::ALL.len()],
}

impl StarCounters {
    /// How many frames died for `reason`.
    pub fn drops(&self, reason: StarDrop) -> u64 {
        self.drops[reason as usize].load()
    }

    /// How often `event` has happened.
    pub fn events(&self, event: StarEvent) -> u64 {
        self.events[event as usize].load()
    }

    pub(crate) fn drop_frame(&self, reason: StarDrop) {
        self.drops[reason as usize].add(1);
    }

    pub(crate) fn count(&self, event: StarEvent) {
        self.events[event as usize].add(1);
    }

    pub(crate) fn count_many(&self, event: StarEvent, count: usize) {
        self.events[event as usize].add(count as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_and_each_event_has_a_counter_of_its_own() {
        let counters = StarCounters::default();
        for (count, reason) in (0..).zip(StarDrop::ALL) {
            (0..count).for_each(|_| counters.drop_frame(reason));
        }
        for (count, event) in (0..).zip(StarEvent::ALL) {
            counters.count_many(event, count);
        }
        for (count, reason) in (0..).zip(StarDrop::ALL) {
            assert_eq!(counters.drops(reason), count, "{reason:?}");
        }
        for (count, event) in (0..).zip(StarEvent::ALL) {
            assert_eq!(counters.events(event), count, "{event:?}");
        }
    }
}
