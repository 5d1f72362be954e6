//! Answers of Z to a frame.

/// The answer of Z to an authentic frame of F.
//= star#ours-answers
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Answer {
    /// It has had its effect, now or before: the chunk is in memory, the completion is given, the
    /// part of STATE is taken. Of a GD: the data is here.
    Done = 0,
    /// The connection, or the use of the slot, is over at Z: nothing happened, nothing will, and F
    /// ends the connection.
    Gone = 1,
    /// There was no room to remember it, and nothing happened: to be sent again, later.
    Busy = 2,
    /// It had expired, or expires too far ahead, by Z's clock, which the answer tells: nothing
    /// happened. To be sent again, with an expiry of this clock.
    Clock = 3,
    /// The MR is gone, lacks the right, belongs to another PD, or does not reach so far: nothing
    /// happened.
    Denied = 4,
}

impl Answer {
    /// All answers, in the order of their codes.
    pub const ALL: [Self; 5] = [Self::Done, Self::Gone, Self::Busy, Self::Clock, Self::Denied];

    /// The answer of this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}
