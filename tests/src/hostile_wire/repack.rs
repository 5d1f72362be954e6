//! Packets that no host has sent, of frames that came by: cut, doubled, swapped, mixed.
//!
//! Invariant: no packet gets longer than the wire carries, unless it was so before.

use rma_core::wire;
use rma_sim::prng::Prng;

use super::frame::split;

/// The longest packet that is made, in octets: one that either address family carries over
/// Ethernet's usual MTU.
const LEN_MAX: usize = 1400;

/// Octet of the frame type, and octets that say how long a payload is, in frames that have one.
const FRAME_TYPE: usize = 1;
const PAYLOAD_LEN: core::ops::Range<usize> = 30..32;

/// A change that can be made to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It ends at any octet.
    Cut,
    /// One of its frames comes twice.
    Doubled,
    /// Two of its frames change places.
    Swapped,
    /// One of its frames is no longer in it.
    LeftOut,
    /// Another frame is the first of it, is in the midst of it, or is the last.
    Joined,
    /// One of its frames says that it is of the version before this one.
    OldVersion,
    /// One of its frames says any length of payload.
    BadLength,
    /// As many frames as the wire carries, all of which it has, again and again.
    Repeated,
    /// Octets without meaning in the midst of it, or behind it.
    Rubbish,
}

impl Change {
    /// All of them.
    pub(super) const ALL: [Self; 9] = [
        Self::Cut,
        Self::Doubled,
        Self::Swapped,
        Self::LeftOut,
        Self::Joined,
        Self::OldVersion,
        Self::BadLength,
        Self::Repeated,
        Self::Rubbish,
    ];
}

/// A packet changed so. `other` is a frame or a packet that came by or was forged, if there is one.
pub(super) fn repack(
    packet: &[u8],
    change: Change,
    other: Option<&[u8]>,
    prng: &mut Prng,
) -> Vec<u8> {
    let (mut frames, tail) = split(packet);
    if frames.is_empty() {
        return packet.to_vec();
    }
    let len_max = LEN_MAX.max(packet.len());
    let mut any = |below: usize| prng.below(below as u64) as usize;
    let at = any(frames.len());
    match change {
        Change::Cut => return packet[..any(packet.len()).max(1)].to_vec(),
        Change::Doubled => frames.insert(any(frames.len() + 1), frames[at].clone()),
        Change::Swapped => {
            let with = any(frames.len());
            frames.swap(at, with);
        }
        Change::LeftOut => drop(frames.remove(at)),
        Change::Joined => {
            let places = [0, at, frames.len()];
            frames.insert(places[any(3)], other.unwrap_or(&[]).to_vec());
        }
        Change::OldVersion => frames[at][0] = wire::VERSION - 1,
        Change::BadLength => {
            let frame = &mut frames[at];
            // A request has none, so it becomes a frame of a type that has.
            if any(2) == 0 {
                frame[FRAME_TYPE] = [2, 7][any(2)];
            }
            let len = [any(100), any(1 << 16)][any(2)] as u16;
            frame[PAYLOAD_LEN].copy_from_slice(&len.to_be_bytes());
        }
        Change::Repeated => {
            frames = frames.iter().cycle().take(100).cloned().collect();
        }
        Change::Rubbish => {
            let mut rubbish = vec![0; any(100)];
            prng.fill(&mut rubbish);
            frames.insert(at + 1, rubbish);
        }
    }
    let mut changed = Vec::new();
    for frame in frames.into_iter().chain([tail]) {
        if changed.len() + frame.len() <= len_max {
            changed.extend(frame);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failure notice of `number`.
    fn notice(number: u8) -> Vec<u8> {
        let mut notice = vec![number; 48];
        notice[..2].copy_from_slice(&[wire::VERSION, 3]);
        notice
    }

    #[test]
    fn each_change_makes_what_it_says_and_nothing_too_long() {
        let three = [notice(1), notice(2), notice(3)];
        let packet = three.concat();
        let mut prng = Prng::new(1);
        for change in Change::ALL {
            let mut differed = 0;
            for _ in 0..200 {
                let changed = repack(&packet, change, Some(&notice(9)), &mut prng);
                let (frames, tail) = split(&changed);
                assert!(changed.len() <= LEN_MAX, "{change:?}: {}", changed.len());
                differed += u32::from(changed != packet);
                let right = match change {
                    Change::Cut => changed.len() < packet.len() && frames.len() < 3,
                    Change::Doubled => frames.len() == 4 && !frames.contains(&notice(9)),
                    Change::Swapped => {
                        frames.len() == 3 && three.iter().all(|it| frames.contains(it))
                    }
                    Change::LeftOut => frames.len() == 2,
                    Change::Joined => frames.len() == 4 && frames.contains(&notice(9)),
                    Change::OldVersion => frames.len() < 3 && tail[0] == wire::VERSION - 1,
                    Change::Repeated => frames.len() == LEN_MAX / 48,
                    Change::BadLength | Change::Rubbish => changed != packet,
                };
                assert!(right || changed == packet, "{change:?}: {frames:02x?}, {tail:02x?}");
            }
            assert!(differed > 50, "{change:?} changed {differed} of 200");
        }
    }

    #[test]
    fn a_packet_that_is_no_frame_or_longer_than_others_stays_whole() {
        let mut prng = Prng::new(2);
        let (rubbish, long) = ([7; 60], notice(1).repeat(31));
        for change in Change::ALL {
            assert_eq!(repack(&rubbish, change, None, &mut prng), rubbish);
            assert!(repack(&long, change, None, &mut prng).len() <= long.len(), "{change:?}");
        }
    }
}
