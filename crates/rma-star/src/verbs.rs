//! The words of verbs: what is posted and what completes.

use core::fmt;

/// The op of a work request: the paper's OPT (figure 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WqeOp {
    /// Sends a message, which a RECV of the peer takes.
    Send,
    /// Takes a message that the peer sends.
    Recv,
    /// Writes into memory of the peer.
    Write,
    /// Reads memory of the peer.
    Read,
}

impl WqeOp {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Send, Self::Recv, Self::Write, Self::Read];

    /// Its number on the wire: two bits.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The op with this number.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Send),
            1 => Some(Self::Recv),
            2 => Some(Self::Write),
            3 => Some(Self::Read),
            _ => None,
        }
    }

    /// Whether it is posted to the receive queue; the others are to the send queue.
    #[must_use]
    pub const fn is_recv(self) -> bool {
        matches!(self, Self::Recv)
    }
}

/// The status that a work request ended with: `ibv_wc_status`, as far as there is such a thing
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WcStatus {
    /// It did what was asked.
    Success,
    /// The message was longer than the buffer of the RECV.
    LocLenErr,
    /// The local end was no memory region of its protection domain, or not so long, or not to be
    /// written.
    LocProtErr,
    /// The work request makes no sense.
    LocQpOpErr,
    /// The connection had failed or was closed before it was done.
    WrFlushErr,
    /// The peer refused it: the message was longer than its RECV.
    RemInvReqErr,
    /// The peer allows no such access to that memory, or there is none.
    RemAccessErr,
    /// The peer failed while it did its part.
    RemOpErr,
    /// The peer did not answer, however often it was asked.
    RetryExcErr,
    /// The peer had no RECV for the message for too long.
    RnrRetryExcErr,
    /// A table of this host was full.
    GeneralErr,
}

impl WcStatus {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::Success,
        Self::LocLenErr,
        Self::LocProtErr,
        Self::LocQpOpErr,
        Self::WrFlushErr,
        Self::RemInvReqErr,
        Self::RemAccessErr,
        Self::RemOpErr,
        Self::RetryExcErr,
        Self::RnrRetryExcErr,
        Self::GeneralErr,
    ];

    /// Its number on the wire and in lines.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The status with this number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::LocLenErr => "the message was longer than the buffer of the RECV",
            Self::LocProtErr => "the local memory region does not allow it or is not so long",
            Self::LocQpOpErr => "the work request makes no sense",
            Self::WrFlushErr => "the connection had ended before",
            Self::RemInvReqErr => "the message was longer than the buffer of the peer's RECV",
            Self::RemAccessErr => "the peer allows no such access",
            Self::RemOpErr => "the peer failed at it",
            Self::RetryExcErr => "the peer did not answer",
            Self::RnrRetryExcErr => "the peer had no RECV for too long",
            Self::GeneralErr => "a table of this host was full",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_name_what_they_are_the_codes_of() {
        for op in WqeOp::ALL {
            assert_eq!(WqeOp::from_code(op.code()), Some(op));
        }
        assert_eq!(WqeOp::from_code(4), None);
        for status in WcStatus::ALL {
            assert_eq!(WcStatus::from_code(status.code()), Some(status));
        }
        assert_eq!(WcStatus::from_code(11), None);
    }
}
