//! Counts the work that one run of a filter does, and ends the run when it is too much.
//!
//! jaq has no limit of its own, and a filter cannot be stopped from outside without a thread for
//! it. So everything that jaq calls of ours counts: [`Terms`], which it asks for each term it
//! evaluates, and the values, of which each operation charges its cost. At the same occasions the
//! depth of the stack is looked at. When a budget is spent the run is unwound, which `try` in the
//! filter cannot catch, and [`within`] reports it. This needs `panic = "unwind"`, which is the
//! default. The panic hook is not called.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use jaq_core::{DataT, Lut, data::HasLut};

use super::value::Value;

/// A quarter of what a thread has by default. What the caller uses before, and what unwinding and
/// destructors use after, fits into the rest many times.
const STACK_BYTES_MAX: usize = 512 << 10;

thread_local! {
    static STEPS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static STACK_START: Cell<usize> = const { Cell::new(0) };
}

/// Why a run did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JqStopReason {
    /// The budget of steps is spent.
    TooMuchWork,
    /// Calls within calls, or values within values, would exhaust the stack.
    TooDeep,
    /// jaq panicked: a bug there, which must not take anything else down.
    Panicked,
}

/// Runs `work` with a budget of `steps`.
pub(super) fn within<T>(steps: u64, work: impl FnOnce() -> T) -> Result<T, JqStopReason> {
    STEPS_LEFT.set(steps);
    STACK_START.set(stack_address());
    // Nothing that `work` leaves half done is used afterwards.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    outcome.map_err(|payload| payload.downcast_ref().copied().unwrap_or(JqStopReason::Panicked))
}

/// Takes `steps` from the budget, or ends the run.
pub(super) fn charge(steps: usize) {
    match STEPS_LEFT.get().checked_sub(steps as u64) {
        Some(left) => STEPS_LEFT.set(left),
        None => stop(JqStopReason::TooMuchWork),
    }
    if stack_address().abs_diff(STACK_START.get()) > STACK_BYTES_MAX {
        stop(JqStopReason::TooDeep);
    }
}

/// Ends the run.
pub(super) fn stop(why: JqStopReason) -> ! {
    // Destructors run on the way out; a second stop in one of them would abort the process.
    STEPS_LEFT.set(u64::MAX);
    STACK_START.set(stack_address());
    resume_unwind(Box::new(why))
}

/// Roughly where the top of the stack is.
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here).addr()
}

/// What filters are compiled for: our values, and terms that are counted.
pub(super) struct Data;

impl DataT for Data {
    type V<'a> = Value;
    type Data<'a> = Terms<'a>;
}

/// The terms of a compiled filter. jaq asks for them whenever it evaluates one.
#[derive(Clone)]
pub(super) struct Terms<'a>(pub(super) &'a Lut<Data>);

impl<'a> HasLut<'a, Data> for Terms<'a> {
    fn lut(&self) -> &'a Lut<Data> {
        charge(1);
        self.0
    }
}
