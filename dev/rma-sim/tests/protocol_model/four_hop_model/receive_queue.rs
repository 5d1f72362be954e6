//! The target's receive queue: posts that its application has made, and events that it was told.
//!
//! Each SEND takes one post. The first data of an op binds it, and the commit consumes it; if the
//! op ends otherwise it is given back. The application posts nothing more in a run.

/// Posts, by what became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReceiveQueue {
    pub(crate) posted: u8,
    /// An event was published for each.
    pub(crate) consumed: u8,
}

/// The post of an op that takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Post {
    /// No data has come, or the op takes none.
    Unbound,
    Bound,
    /// There was none when data came: nothing of the op is applied.
    Missing,
}

impl ReceiveQueue {
    pub(crate) const fn new(posted: u8) -> Self {
        Self { posted, consumed: 0 }
    }

    /// Takes a post, if there is one.
    pub(crate) fn bind(&mut self) -> Post {
        match self.posted.checked_sub(1) {
            Some(rest) => {
                self.posted = rest;
                Post::Bound
            }
            None => Post::Missing,
        }
    }

    /// An op ends without having been applied.
    pub(crate) fn give_back(&mut self, post: Post) {
        self.posted += u8::from(post == Post::Bound);
    }
}
