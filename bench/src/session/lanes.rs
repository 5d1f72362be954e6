//! Lanes: the parts of a region that one writer each has for itself.

use std::collections::BTreeMap;

use crate::session::message::{Lane, Refusal};

/// Lanes begin at multiples of this: a line of the cache, so that words lie in it as in the region.
const ALIGN: u64 = 64;

/// The lanes that are taken.
#[derive(Debug)]
pub(super) struct Lanes {
    /// The bytes that lanes are in.
    room: Lane,
    most: u32,
    /// By the connection of their owners: at most one each.
    taken: BTreeMap<u64, Lane>,
    /// The end of all that was ever in a lane: beyond it the region is as it was filled.
    used_up_to: u64,
    /// The place where the search for the next one begins. A lane that was given back is given
    /// again as late as can be, as an owner whose connection was cut may still write to it.
    next: u64,
}

impl Lanes {
    /// At most so many, in the second half of a region of `len` bytes.
    pub(super) fn new(len: u64, most: u32) -> Self {
        let offset = (len / 2).next_multiple_of(ALIGN).min(len);
        let room = Lane { offset, len: len - offset };
        Self { room, most, taken: BTreeMap::new(), used_up_to: offset, next: offset }
    }

    /// The bytes that lanes are in.
    pub(super) const fn room(&self) -> Lane {
        self.room
    }

    /// Gives `owner` the next `len` bytes that are free in a row, in place of what it had.
    pub(super) fn take(&mut self, owner: u64, len: u64) -> Result<Lane, Refusal> {
        let Self { room, most, next, .. } = *self;
        self.give_back(owner);
        if len == 0 || len > room.len {
            return Err(Refusal::LaneLen { most: room.len });
        }
        if self.taken.len() >= most as usize {
            return Err(Refusal::Lanes { lanes: most });
        }
        let free: Vec<Lane> = self.free().collect();
        let fits = |it: &Lane| it.len >= len;
        // What is left of a stretch behind `next`.
        let behind = |it: &Lane| {
            let offset = it.offset.max(next);
            Lane { offset, len: (it.offset + it.len).saturating_sub(offset) }
        };
        let found = free.iter().map(behind).find(fits).or_else(|| free.iter().copied().find(fits));
        let Some(Lane { offset, .. }) = found else {
            let longest = free.iter().map(|it| it.len).max().unwrap_or(0);
            return Err(Refusal::Stretch { longest });
        };
        let lane = Lane { offset, len };
        self.taken.insert(owner, lane);
        self.next = (offset + len).next_multiple_of(ALIGN);
        Ok(lane)
    }

    /// The stretches that nobody has.
    fn free(&self) -> impl Iterator<Item = Lane> {
        let mut taken: Vec<Lane> = self.taken.values().copied().collect();
        taken.sort_by_key(|it| it.offset);
        let end = self.room.offset + self.room.len;
        let mut offset = self.room.offset;
        taken.into_iter().chain([Lane { offset: end, len: 0 }]).map(move |next| {
            let free = Lane { offset, len: next.offset.saturating_sub(offset) };
            offset = (next.offset + next.len).next_multiple_of(ALIGN);
            free
        })
    }

    /// Notes that a lane was given. Returns its part that an earlier owner may have written to.
    pub(super) fn give(&mut self, lane: Lane) -> Lane {
        let end = lane.offset + lane.len;
        let used = self.used_up_to.clamp(lane.offset, end) - lane.offset;
        self.used_up_to = self.used_up_to.max(end);
        Lane { len: used, ..lane }
    }

    /// The lane of `owner`, if it has one, is free.
    pub(super) fn give_back(&mut self, owner: u64) {
        self.taken.remove(&owner);
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_in_the_second_half_apart_and_free_again_when_given_back() {
        let mut lanes = Lanes::new(1000, 3);
        assert_eq!(lanes.room(), Lane { offset: 512, len: 488 });
        assert_eq!(lanes.take(1, 100), Ok(Lane { offset: 512, len: 100 }));
        assert_eq!(lanes.take(2, 64), Ok(Lane { offset: 640, len: 64 }));
        assert_eq!(lanes.take(3, 300), Err(Refusal::Stretch { longest: 296 }));
        assert_eq!(lanes.take(3, 296), Ok(Lane { offset: 704, len: 296 }));
        assert_eq!(lanes.take(4, 1), Err(Refusal::Lanes { lanes: 3 }));
        // Another one in place of its own, at the same place.
        assert_eq!(lanes.take(1, 128), Ok(Lane { offset: 512, len: 128 }));
        lanes.give_back(2);
        assert_eq!((lanes.taken(), lanes.take(4, 65)), (2, Err(Refusal::Stretch { longest: 64 })));
        assert_eq!(lanes.take(4, 64), Ok(Lane { offset: 640, len: 64 }));
    }

    #[test]
    fn a_lane_that_was_given_back_is_given_again_last_of_all() {
        let mut lanes = Lanes::new(1024, 16);
        for (owner, offset) in [(1, 512), (2, 640), (3, 768)] {
            assert_eq!(lanes.take(owner, 128), Ok(Lane { offset, len: 128 }));
            lanes.give_back(owner);
        }
        assert_eq!(lanes.take(4, 128), Ok(Lane { offset: 896, len: 128 }));
        assert_eq!(lanes.take(5, 128), Ok(Lane { offset: 512, len: 128 }));
    }

    #[test]
    fn of_a_lane_only_what_was_in_one_before_is_to_be_filled_anew() {
        let mut lanes = Lanes::new(1024, 16);
        let used = |lanes: &mut Lanes, owner, len| {
            let lane = lanes.take(owner, len).unwrap();
            (lane, lanes.give(lane).len)
        };
        assert_eq!(used(&mut lanes, 1, 100), (Lane { offset: 512, len: 100 }, 0));
        assert_eq!(used(&mut lanes, 2, 64), (Lane { offset: 640, len: 64 }, 0));
        assert_eq!(used(&mut lanes, 3, 320), (Lane { offset: 704, len: 320 }, 0));
        lanes.give_back(1);
        assert_eq!(used(&mut lanes, 4, 128), (Lane { offset: 512, len: 128 }, 128));
    }

    #[test]
    fn a_lane_that_cannot_be_is_refused_with_the_most_that_can() {
        for (region, len, most) in [(1000, 489, 488), (1000, u64::MAX, 488), (1000, 0, 488)] {
            assert_eq!(Lanes::new(region, 16).take(1, len), Err(Refusal::LaneLen { most }));
        }
        for region in [0, 1, 63, 65] {
            let most = Lanes::new(region, 16).room().len;
            assert_eq!(Lanes::new(region, 16).take(1, most + 1), Err(Refusal::LaneLen { most }));
        }
        assert_eq!(Lanes::new(1000, 0).take(1, 8), Err(Refusal::Lanes { lanes: 0 }));
    }
}
