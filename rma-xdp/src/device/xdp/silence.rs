//! Whether a device is mute with zero-copy: what comes is not delivered, or what is sent does not
//! arrive. Kernels are known whose zero-copy is accepted and does just that, while no call fails
//! and every frame that is sent is counted as sent (docs/decisions/paths.md).
//!
//! A host whose peers are dead hears nothing either, and that is no fault of its device. So a
//! device that does not deliver is one that counts frames for which it has no buffer, while nobody
//! on this machine gets any; and one that does not send is suspected only, if others are heard and
//! nobody answers us.
//!
//! Pure: it is fed with counts, a look at a time. It counts looks and not time, so that a process
//! that was stopped has not heard less than it could.

/// Looks, one after the other, without a frame: fewer, and the restart of a peer is taken for a
/// fault; more, and ops end with TIMEOUT for longer.
const LOOKS: u32 = 5;
/// Packets that were sent in that time: nobody must have answered as many.
const SENT_MIN: u64 = 64;

/// The counts so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Packets that came to our sockets, whatever became of them.
    pub(super) received: u64,
    /// Packets that we have sent.
    pub(super) sent: u64,
    /// Packets that the interface has delivered, to anybody.
    pub(super) delivered: u64,
    /// Packets that it has dropped, as it had no buffer for them.
    pub(super) without_buffer: u64,
}

/// In which direction a device is mute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mute {
    /// It has no buffers, and delivers nothing to anybody.
    Receiving,
    /// It delivers packets to others, and nobody answers those that we send. Perhaps.
    Sending,
}

/// Looks since something was heard.
#[derive(Clone, Copy, Debug)]
struct Since {
    counts: Counts,
    looks: u32,
}

impl Since {
    const fn new(counts: Counts) -> Self {
        Self { counts, looks: 0 }
    }
}

/// Looks after a device.
#[derive(Debug)]
pub(super) struct Silence {
    /// Since one of us or anybody else was delivered a packet.
    for_all: Since,
    /// Since we were.
    for_us: Since,
    /// Packets that had been sent at the last look.
    sent: u64,
}

impl Silence {
    /// Begins to look, with what has been counted so far.
    pub(super) const fn new(counts: Counts) -> Self {
        Self { for_all: Since::new(counts), for_us: Since::new(counts), sent: counts.sent }
    }

    /// A look. Returns the verdict on the device.
    pub(super) fn look(&mut self, now: Counts) -> Option<Mute> {
        if now.received != self.for_us.counts.received {
            *self = Self::new(now);
            return None;
        }
        if now.delivered == self.for_all.counts.delivered {
            self.for_all.looks += 1;
        } else {
            self.for_all = Since::new(now);
        }
        if now.sent != self.sent {
            self.sent = now.sent;
            self.for_us.looks += 1;
        }
        let Self { for_all, for_us, .. } = self;
        let starved = now.without_buffer != for_all.counts.without_buffer;
        if for_all.looks >= LOOKS && starved {
            return Some(Mute::Receiving);
        }
        let sent = now.sent.wrapping_sub(for_us.counts.sent);
        let others_hear = now.delivered != for_us.counts.delivered;
        (for_us.looks >= LOOKS && sent >= SENT_MIN && others_hear).then_some(Mute::Sending)
    }
}

/// Looks whether copy mode hears what zero-copy did not. While nothing is sent nobody answers, so
/// such looks say nothing.
#[derive(Debug)]
pub(super) struct Trial {
    began: Traffic,
    /// Packets that had been sent at the last look.
    sent: u64,
    looks: u32,
}

/// Our packets, in both directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Trial {
    /// Begins, with what was received and sent so far.
    pub(super) const fn new(now: Traffic) -> Self {
        Self { began: now, sent: now.sent, looks: 0 }
    }

    /// A look. Gives whether zero-copy was to blame, once that is known.
    pub(super) const fn look(&mut self, now: Traffic) -> Option<bool> {
        if now.received != self.began.received {
            return Some(true);
        }
        if now.sent != self.sent {
            self.sent = now.sent;
            self.looks += 1;
        }
        let sent = now.sent.wrapping_sub(self.began.sent);
        if self.looks >= LOOKS && sent >= SENT_MIN { Some(false) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdicts of so many looks; `change` is what happens between two of them.
    fn looks(
        silence: &mut Silence,
        counts: &mut Counts,
        count: u32,
        change: impl Fn(&mut Counts),
    ) -> Option<Mute> {
        (0..count).find_map(|_| {
            change(counts);
            silence.look(*counts)
        })
    }

    fn begin() -> (Silence, Counts) {
        let counts = Counts { received: 7, sent: 9, delivered: 70, without_buffer: 3 };
        (Silence::new(counts), counts)
    }

    #[test]
    fn a_device_without_buffers_that_delivers_nothing_to_anybody_is_mute() {
        let (mut silence, mut counts) = begin();
        assert_eq!(looks(&mut silence, &mut counts, LOOKS - 1, |c| c.without_buffer += 1), None);
        let mute = looks(&mut silence, &mut counts, 1, |_| ());
        assert_eq!(mute, Some(Mute::Receiving));
    }

    #[test]
    fn a_device_that_delivers_to_anybody_is_not_without_buffers_for_good() {
        let (mut silence, mut counts) = begin();
        let crowded = |c: &mut Counts| {
            c.without_buffer += 100;
            c.delivered += 1;
        };
        assert_eq!(looks(&mut silence, &mut counts, 100, crowded), None);
    }

    #[test]
    fn a_quiet_network_is_no_fault() {
        let (mut silence, mut counts) = begin();
        assert_eq!(looks(&mut silence, &mut counts, 100, |_| ()), None);
        // A switch that is off: what is sent goes nowhere, and nobody hears anything.
        assert_eq!(looks(&mut silence, &mut counts, 100, |c| c.sent += 1000), None);
    }

    #[test]
    fn a_host_that_asks_nobody_may_hear_nothing_while_others_do() {
        let (mut silence, mut counts) = begin();
        assert_eq!(looks(&mut silence, &mut counts, 100, |c| c.delivered += 1), None);
        // The first packets after a long pause are not without an answer yet.
        assert_eq!(looks(&mut silence, &mut counts, 1, |c| c.sent += 1000), None);
    }

    #[test]
    fn a_host_that_nobody_answers_while_others_hear_is_suspected() {
        let (mut silence, mut counts) = begin();
        let unanswered = |c: &mut Counts| {
            c.sent += SENT_MIN;
            c.delivered += 1;
        };
        assert_eq!(looks(&mut silence, &mut counts, LOOKS - 1, unanswered), None);
        assert_eq!(looks(&mut silence, &mut counts, 1, unanswered), Some(Mute::Sending));
    }

    #[test]
    fn an_answer_now_and_then_is_enough() {
        let (mut silence, mut counts) = begin();
        for _ in 0..20 {
            let unanswered = |c: &mut Counts| {
                c.sent += 1000;
                c.delivered += 1;
            };
            assert_eq!(looks(&mut silence, &mut counts, LOOKS - 1, unanswered), None);
            counts.received += 1;
            assert_eq!(silence.look(counts), None);
        }
    }

    #[test]
    fn zero_copy_is_to_blame_if_copy_mode_hears_and_not_if_it_does_not() {
        let sent = |looks: u32| Traffic { received: 7, sent: u64::from(looks) * SENT_MIN };
        let mut trial = Trial::new(sent(0));
        assert!((1..LOOKS).all(|look| trial.look(sent(look)).is_none()));
        assert_eq!(trial.look(sent(LOOKS)), Some(false));
        let mut trial = Trial::new(sent(0));
        assert_eq!(trial.look(sent(1)), None);
        assert_eq!(trial.look(Traffic { received: 8, ..sent(1) }), Some(true));
    }

    #[test]
    fn zero_copy_is_not_acquitted_while_nothing_is_sent() {
        let quiet = Traffic { received: 7, sent: 9 };
        let mut trial = Trial::new(quiet);
        assert!((0..100).all(|_| trial.look(quiet).is_none()));
        // A packet in each look is too few to say that nobody answers.
        let few = |look: u64| Traffic { sent: quiet.sent + look, ..quiet };
        assert!((1..SENT_MIN).all(|look| trial.look(few(look)).is_none()));
        assert_eq!(trial.look(few(SENT_MIN)), Some(false));
    }
}
