//! `rma-figures paper`: the evaluations of the three papers, reproduced: for each figure and table
//! its values here, the paper's claims about it as formulas, and verdicts that are computed.
//!
//! | module | what it is |
//! |---|---|
//! | `command` | the command: which figures run, and what is written |
//! | `list` | all figures, in the order of the page |
//! | `figure` | the trait of a figure: what it says, its points, its claims, its picture |
//! | `points` | what a figure's run leaves behind, as it is stored |
//! | `claims` | claims of a paper, held against points, and verdicts |
//! | `drawn` | points as pictures |
//! | `differences` | reviewed reasons why claims do not hold |
//! | `judged` | a figure with its points, claims and verdict |
//! | `page` | all of them on one page, as HTML and as Markdown |
//! | `store` | the folder that they are written to |
//! | `run` | the scale, seeds and threads of a run |
//! | `one_rma`, `star`, `channels` | the figures of each paper, a file each |
//! | `beyond` | figures that no paper has |
//!
//! A figure is a file of its own and a line in its paper's list. Nothing else knows it.

mod about;
pub(crate) mod beyond;
pub(crate) mod channels;
pub(crate) mod claims;
mod command;
#[cfg(test)]
mod committed;
mod differences;
pub(crate) mod drawn;
mod failed;
pub(crate) mod figure;
mod judged;
mod list;
pub(crate) mod one_rma;
mod page;
pub(crate) mod points;
pub(crate) mod run;
pub(crate) mod star;
mod store;

pub use self::{
    command::{PaperArgs, PaperError, paper},
    differences::DifferencesError,
    store::StoreError,
};
