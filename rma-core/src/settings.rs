//! Making settings that may gain fields.
//!
//! They are `#[non_exhaustive]`, so that a program which sets some of them still compiles when
//! there are more: another crate can neither name all fields at once, nor take the rest from
//! another value in braces. A constructor gives defaults, and then fields are set, as they are
//! public; in an expression by `with`. The settings of all crates are made so, by this macro.

/// Gives settings a method that sets fields in an expression.
#[macro_export]
macro_rules! settings {
    ($($type:ident),+) => {$(
        impl $type {
            /// These settings as `change` leaves them: `settings.with(|it| it.field = value)`.
            pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
                change(&mut self);
                self
            }
        }
    )+};
}
