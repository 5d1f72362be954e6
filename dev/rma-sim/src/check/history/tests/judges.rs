//! The tester of `stateright` as a third judge: slow, and written by others.
//!
//! It knows ops that have returned and ops that have not, which may take effect at any time. So of
//! the ops whose outcome is unknown each set is tried: those in it return what nobody looks at, at
//! their last moment, and the others never were.

use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

use super::{drafts::Draft, *};

/// A word, as `stateright` wants it.
#[derive(Clone, Debug)]
struct Cell(u64);

impl SequentialSpec for Cell {
    type Op = Kind;
    /// `None`: whatever it was.
    type Ret = Option<u64>;

    fn invoke(&mut self, op: &Kind) -> Option<u64> {
        let before = self.0;
        match *op {
            Kind::Load => {}
            Kind::Store { new } => self.0 = new,
            Kind::FetchAdd { addend } => self.0 = self.0.wrapping_add(addend),
            Kind::CompareSwap { expected, new } => {
                if self.0 == expected {
                    self.0 = new;
                }
            }
        }
        Some(before)
    }

    fn is_valid_step(&mut self, op: &Kind, ret: &Option<u64>) -> bool {
        let before = self.invoke(op);
        ret.is_none() || *ret == before
    }
}

/// Whether there is an order, as `stateright` sees it.
pub(super) fn by_stateright(drafts: &[Draft]) -> bool {
    let (mut certain, mut doubtful) = (Vec::new(), Vec::new());
    for draft in drafts {
        let step = |ret, over| (draft.kind, draft.invoked, ret, over);
        match draft.end {
            Some((Outcome::Applied { before }, over)) => certain.push(step(Some(before), over)),
            Some((Outcome::Stored, over)) => certain.push(step(None, over)),
            Some((Outcome::NotApplied, _)) => {}
            Some((Outcome::Unknown, over)) => doubtful.push(step(None, over)),
            None => doubtful.push(step(None, Moment::NEVER)),
        }
    }
    (0..1_u32 << doubtful.len()).any(|set| {
        let taken = doubtful.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
        let steps: Vec<_> = certain.iter().chain(taken.map(|it| it.1)).collect();
        // An op that begins as another ends is not behind it.
        let begins = steps.iter().enumerate().map(|(thread, it)| (it.1, false, thread));
        let ends = steps.iter().enumerate().map(|(thread, it)| (it.3, true, thread));
        let mut events: Vec<_> = begins.chain(ends).collect();
        events.sort_unstable();
        let mut tester = LinearizabilityTester::new(Cell(0));
        for (_, is_end, thread) in events {
            let (kind, _, ret, _) = *steps[thread];
            let told = match is_end {
                true => tester.on_return(thread, ret),
                false => tester.on_invoke(thread, kind),
            };
            told.expect("each op is a thread of its own");
        }
        tester.is_consistent()
    })
}
