//! Memory that ops change, cut into places of which each op has one for itself, and the model of
//! what must be there.
//!
//! A place is longer than the largest op, so that bytes around the op are watched too. It rests
//! between two ops: what then changes there is the late effect of an op that was over.
//!
//! A late effect breaks a promise, and only the responder's NIC can excuse it, by its count. So
//! what it may be is narrow: bytes of a WRITE of this very place that did not end OK, where they
//! belong. How many frames they came in at least is counted here ([`Places::late_frames`]), to be
//! held against the NIC's count.

use core::ops::Range;
use std::collections::BTreeSet;

use rma_core::{limits::GRANULE, wire::mutation::DATA_OVERHEAD};
use rma_sim::prng::Prng;
use rma_xdp::RegisteredRegion;

/// Bytes of a place: room for the largest op, and for what must not change around it.
pub const PLACE: usize = 4096 + 512;

const GRANULE_LEN: usize = GRANULE as usize;

/// The most granules of solicited data in one frame: the wire's devices have Ethernet's usual MTU.
const GRANULES_PER_FRAME: usize = (1500 - 20 - 8 - DATA_OVERHEAD) / GRANULE_LEN;

/// A region that is cut into places, and the model of what must be in each of them.
#[derive(Debug)]
pub struct Places {
    memory: RegisteredRegion,
    model: Vec<u8>,
    free: Vec<usize>,
    /// By place: ops that are over and may have late effects.
    over: Vec<Vec<Over>>,
}

/// The end of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All of it is there.
    Ok,
    /// Whole granules of it may be there.
    Failed,
    /// The same; and should more come later, the responder's NIC has counted that.
    MayBeLate,
}

/// An op of a place that is over, and may have late effects.
#[derive(Debug)]
struct Over {
    /// The offset in the place at which it begins.
    start: usize,
    right: Vec<u8>,
    /// Its granules that have come too late.
    late: BTreeSet<usize>,
}

impl Over {
    /// Whether byte `at` of the place is one that this op would have left there.
    fn explains(&self, at: usize, there: &[u8]) -> bool {
        at.checked_sub(self.start).and_then(|at| self.right.get(at)) == Some(&there[at])
    }

    /// How many frames have come too late, at least.
    fn late_frames(&self) -> u64 {
        let (mut frames, mut past) = (0, 0);
        for &granule in &self.late {
            if granule >= past {
                frames += 1;
                past = granule + GRANULES_PER_FRAME;
            }
        }
        frames
    }
}

impl Places {
    /// Memory of `count` places, all at rest.
    ///
    /// # Panics
    /// If it has not that many bytes.
    #[must_use]
    pub fn new(memory: RegisteredRegion, count: usize) -> Self {
        let mut model = vec![0; count * PLACE];
        memory.read(0, &mut model).expect("so many places");
        let over = (0..count).map(|_| Vec::new()).collect();
        Self { memory, model, free: (0..count).collect(), over }
    }

    /// The same memory, registered anew at a host that is a new one: no op of before has an effect
    /// any longer, late or not.
    pub fn set_memory(&mut self, memory: RegisteredRegion) {
        self.memory = memory;
        self.over.iter_mut().for_each(Vec::clear);
    }

    /// How many frames have had an effect after the ops that they were of, at least.
    #[must_use]
    pub fn late_frames(&self) -> u64 {
        self.over.iter().flatten().map(Over::late_frames).sum()
    }

    /// The region that the places are in.
    #[must_use]
    pub const fn memory(&self) -> &RegisteredRegion {
        &self.memory
    }

    /// A place for an op, and where in the memory an op of `size` bytes may lie in it.
    ///
    /// # Panics
    /// If all are taken.
    pub fn take(&mut self, size: usize, prng: &mut Prng) -> (usize, usize) {
        let place = self.free.swap_remove(prng.below(self.free.len() as u64) as usize);
        let within = prng.between(1, (PLACE - 1 - size) as u64) as usize;
        (place, place * PLACE + within)
    }

    /// Holds a place against the model, after an op from `start` (in the memory) on that brought
    /// the `right` bytes or none. The place rests from now on, with new bytes in it: should the op
    /// happen again, it will be seen.
    ///
    /// # Errors
    /// The fault, which is no late effect either.
    pub fn settle(
        &mut self,
        place: usize,
        start: usize,
        right: &[u8],
        end: End,
        prng: &mut Prng,
    ) -> Result<(), String> {
        let there = self.there(place);
        let start = start - place * PLACE;
        let model = &mut self.model[place * PLACE..][..PLACE];
        let wrong = wrong_bytes(model, &there, start, right, end == End::Ok);
        prng.fill(model);
        self.memory.write((place * PLACE) as u64, model).expect("inside");
        self.free.push(place);
        if end == End::MayBeLate {
            // From now on: a copy that is half done is too late as well.
            self.over[place].push(Over { start, right: right.to_vec(), late: BTreeSet::new() });
        }
        self.explain(place, wrong, &there)
    }

    /// Looks at all places at rest. What has changed by a late effect counts as changed no more.
    ///
    /// # Errors
    /// The other changes.
    pub fn look_at_rest(&mut self) -> Result<(), String> {
        for place in self.free.clone() {
            let there = self.there(place);
            let model = &mut self.model[place * PLACE..][..PLACE];
            if there == *model {
                continue;
            }
            let wrong = (0..PLACE).filter(|&at| there[at] != model[at]).collect();
            model.copy_from_slice(&there);
            self.explain(place, wrong, &there)
                .map_err(|wrong| format!("place {place} changed after its op: {wrong}"))?;
        }
        Ok(())
    }

    /// Finds the ops of which the bytes at `wrong` may be late effects: as few as will do.
    fn explain(&mut self, place: usize, mut wrong: Vec<usize>, there: &[u8]) -> Result<(), String> {
        while let (Some(first), Some(last)) = (wrong.first(), wrong.last()) {
            let explained =
                |over: &Over| wrong.iter().filter(|&&at| over.explains(at, there)).count();
            let most = self.over[place].iter_mut().max_by_key(|over| explained(over));
            let Some(over) = most.filter(|over| explained(over) > 0) else {
                return Err(format!(
                    "{} bytes from {first} to {last} are wrong, and of no op that could be late",
                    wrong.len()
                ));
            };
            wrong.retain(|&at| {
                let late = over.explains(at, there);
                if late {
                    over.late.insert((at - over.start) / GRANULE_LEN);
                }
                !late
            });
        }
        Ok(())
    }

    fn there(&self, place: usize) -> Vec<u8> {
        let mut there = vec![0; PLACE];
        self.memory.read((place * PLACE) as u64, &mut there).expect("inside");
        there
    }
}

/// Holds what is there against what was there before an op that brought the `right` bytes from
/// `start` on or none; all of them, if it was `ok`. Which bytes are wrong?
fn wrong_bytes(before: &[u8], there: &[u8], start: usize, right: &[u8], ok: bool) -> Vec<usize> {
    let (past, all) = (start + right.len(), there.len());
    let changed = |range: Range<usize>| range.filter(|&at| there[at] != before[at]);
    let mut wrong: Vec<usize> = changed(0..start).collect();
    for granule in (start..past).step_by(GRANULE_LEN) {
        let granule = granule..past.min(granule + GRANULE_LEN);
        let changed: Vec<_> = changed(granule.clone()).collect();
        let other: Vec<_> = granule.filter(|&at| there[at] != right[at - start]).collect();
        // Here or not, whatever it looks more like.
        wrong.extend(if ok || other.len() < changed.len() { other } else { changed });
    }
    wrong.extend(changed(past..all));
    wrong
}

#[cfg(test)]
mod tests {
    use rma_lab::Scratch;
    use rma_xdp::{Host, HostConfig, Permissions};

    use super::*;
    use crate::hosts::Loopback;

    /// Whether an op of 1 for 0 is well that has left `there`, of 200 bytes between guards of 8.
    fn is_well(ok: bool, change: impl Fn(&mut [u8])) -> bool {
        let before = [0; 216];
        let mut there = before;
        change(&mut there);
        wrong_bytes(&before, &there, 8, &[1; 200], ok).is_empty()
    }

    #[test]
    fn an_op_brings_all_if_it_is_ok_and_whole_granules_if_it_is_not() {
        let all = |there: &mut [u8]| there[8..208].fill(1);
        let granule = |there: &mut [u8]| there[72..136].fill(1);
        let last = |there: &mut [u8]| there[200..208].fill(1);
        let part = |there: &mut [u8]| there[72..100].fill(1);
        let other = |there: &mut [u8]| there[72..136].fill(2);
        let around = |there: &mut [u8]| there[7] = 1;
        assert!(is_well(true, all) && is_well(false, all));
        for some in [&granule as &dyn Fn(&mut [u8]), &last, &|_| ()] {
            assert!(is_well(false, some) && !is_well(true, some));
        }
        for wrong in [&part as &dyn Fn(&mut [u8]), &other, &around] {
            assert!(!is_well(false, wrong) && !is_well(true, wrong));
        }
    }

    /// One place in a host's memory, and what ops write there.
    struct Scene {
        places: Places,
        prng: Prng,
        right: Vec<u8>,
        _host: Host,
        _counter: Scratch,
    }

    impl Scene {
        fn new() -> Self {
            let (counter, loopback) = (Scratch::new(), Loopback::unused());
            let mut config = HostConfig::udp(loopback.addresses[0]);
            config.port = loopback.port;
            config.counter.state_dir = Some(counter.path().to_owned());
            let host = Host::open(config).unwrap();
            let memory = host.register(PLACE, Permissions::NONE).unwrap();
            let (places, mut prng) = (Places::new(memory, 1), Prng::new(1));
            let mut right = vec![0; 3000];
            prng.fill(&mut right);
            Self { places, prng, right, _host: host, _counter: counter }
        }

        /// An op at `start`, of which these bytes have landed by its end.
        fn op(&mut self, start: usize, landed: Range<usize>, end: End) -> Result<(), String> {
            let (place, _) = self.places.take(self.right.len(), &mut self.prng);
            self.land(start, landed);
            self.places.settle(place, start, &self.right, end, &mut self.prng)
        }

        fn land(&self, start: usize, bytes: Range<usize>) {
            let memory = self.places.memory();
            memory.write((start + bytes.start) as u64, &self.right[bytes]).unwrap();
        }
    }

    #[test]
    fn late_bytes_are_known_if_their_op_may_be_late_and_they_are_in_its_place() {
        let mut scene = Scene::new();
        scene.op(100, 0..1408, End::MayBeLate).unwrap();
        scene.places.look_at_rest().unwrap();
        assert_eq!(scene.places.late_frames(), 0);
        scene.land(100, 1408..1472);
        scene.places.look_at_rest().unwrap();
        assert_eq!(scene.places.late_frames(), 1);
        // The same again, and more than one frame holds.
        scene.land(100, 1408..3000);
        scene.places.look_at_rest().unwrap();
        assert_eq!(scene.places.late_frames(), 2);
        scene.land(101, 0..64);
        scene.places.look_at_rest().unwrap_err();

        // Seen at the end of the next op only, half over it.
        let mut scene = Scene::new();
        scene.op(100, 0..0, End::MayBeLate).unwrap();
        scene.land(100, 0..640);
        scene.op(500, 0..3000, End::Ok).unwrap();
        assert_eq!(scene.places.late_frames(), 1);
    }

    #[test]
    fn bytes_that_cannot_be_late_are_wrong() {
        for end in [End::Ok, End::Failed] {
            let mut scene = Scene::new();
            scene.op(100, 0..3000, end).unwrap();
            scene.land(100, 64..128);
            scene.places.look_at_rest().unwrap_err();
        }
        // Of an op to the host before.
        let mut scene = Scene::new();
        scene.op(100, 0..3000, End::MayBeLate).unwrap();
        scene.places.set_memory(scene.places.memory().clone());
        scene.land(100, 64..128);
        scene.places.look_at_rest().unwrap_err();
        // A part of a granule is an effect after the end, too.
        let mut scene = Scene::new();
        scene.op(100, 0..32, End::Failed).unwrap_err();
        scene.op(100, 0..32, End::MayBeLate).unwrap();
        assert_eq!(scene.places.late_frames(), 1);
    }
}
