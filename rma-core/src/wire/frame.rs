//! The rows of the frame types, and the claims of a received frame.
//!
//! The rows stand in [`crate::wire`]. What is in a frame of some kind, its own module says; what a
//! NIC does with it, its dispatch.

use super::Header;
use crate::{crypto::Direction, error::DropReason};

/// Makes [`FrameType`], [`FrameView`] and [`Frame`] of their rows.
macro_rules! frames {
    ($(
        $(#[$view_doc:meta])*
        $view:ident($meaning:ty), $direction:ident, $header_len:ident $(+ $payload:ident)? => {
            $($(#[$doc:meta])* $frame_type:ident = $code:literal,)+
        }
    )+) => {
        /// The purpose of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FrameType {
            $($($(#[$doc])* $frame_type = $code,)+)+
        }

        impl FrameType {
            #[inline]
            pub(in crate::wire) const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($($code => Some(Self::$frame_type),)+)+
                    _ => None,
                }
            }

            /// Returns the direction of frames of this type.
            #[must_use]
            pub const fn direction(self) -> Direction {
                match self {
                    $($(Self::$frame_type)|+ => Direction::$direction,)+
                }
            }

            /// Octets of the header of a frame of this type.
            #[inline]
            pub(in crate::wire) const fn header_len(self) -> usize {
                match self {
                    $($(Self::$frame_type)|+ => $header_len,)+
                }
            }

            /// Returns the payload that stands between header and tag.
            #[inline]
            pub(in crate::wire) const fn payload(self) -> Payload {
                match self {
                    $($(Self::$frame_type)|+ => Payload::None$(.or(Payload::$payload))?,)+
                }
            }
        }

        /// A frame whose header makes sense.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FrameView {
            $($(#[$view_doc])* $view(Claimed<$meaning>),)+
        }

        impl FrameView {
            /// Looks at a received frame.
            ///
            /// # Errors
            /// The reason why the frame is not one that this version defines. Never panics,
            /// whatever the bytes.
            #[inline]
            pub fn parse(frame: &[u8]) -> Result<Self, DropReason> {
                let header = HeaderView::parse(frame)?;
                match header.frame_type() {
                    $($(FrameType::$frame_type)|+ => claimed(frame).map(Self::$view),)+
                }
            }

            /// The class of service that the frame claims.
            #[must_use]
            #[inline]
            pub const fn class(&self) -> ClassOfService {
                match self {
                    $(Self::$view(it) => it.0.header.class,)+
                }
            }
        }

        $(impl Frame<$header_len> for $meaning {
            const DIRECTION: Direction = Direction::$direction;

            #[inline]
            fn header(&self) -> &Header {
                &self.header
            }

            #[inline]
            fn header_mut(&mut self) -> &mut Header {
                &mut self.header
            }

            #[inline]
            fn emit(&self, out: &mut [u8; $header_len]) {
                Self::emit(self, out);
            }
        })+
    };
}

/// The payload between header and tag, encrypted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::wire) enum Payload {
    /// No octets: the tag follows at once.
    None,
    /// Bytes of the op. The header says how many.
    Bytes,
    /// One word.
    Word,
}

impl Payload {
    /// `other`, where a row says so.
    pub(in crate::wire) const fn or(self, other: Self) -> Self {
        match self {
            Self::None => other,
            it => it,
        }
    }
}

/// A kind of frame: a header of `HEADER` octets, which begins with the common one.
pub(crate) trait Frame<const HEADER: usize>: Copy {
    /// The direction of such frames.
    const DIRECTION: Direction;

    /// The common header.
    fn header(&self) -> &Header;

    /// The common header, to stamp it.
    fn header_mut(&mut self) -> &mut Header;

    /// Writes the whole header.
    fn emit(&self, out: &mut [u8; HEADER]);
}

/// The meaning of a frame of one kind.
pub(super) trait Meaning: Sized {
    /// Reads a frame. Never panics, whatever the bytes.
    fn parse(frame: &[u8]) -> Result<Self, DropReason>;
}

/// The claims of a frame. None of them has been authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed<T>(pub(super) T);

impl<T: Copy> Claimed<T> {
    /// The claims. To be believed only after the frame's tag has been checked.
    #[must_use]
    #[inline]
    pub const fn claims(&self) -> T {
        self.0
    }
}

#[inline]
pub(super) fn claimed<T: Meaning>(frame: &[u8]) -> Result<Claimed<T>, DropReason> {
    T::parse(frame).map(Claimed)
}
