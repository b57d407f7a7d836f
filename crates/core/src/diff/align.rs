//! Which elements of two lists belong together: what was put in or taken out in the middle must not
//! make everything behind it look changed.

use super::scan;

/// Pairs that are tried to find the longest row of elements that both lists have.
const PAIRS_MAX: usize = 250_000;

/// What became of elements, by their places in both lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// These two belong together, whether they are equal or not.
    Both(usize, usize),
    /// Only the first list has it.
    Removed(usize),
    /// Only the second list has it.
    Added(usize),
}

/// The steps from one list to the other, and how much work it was to find them. Elements that are
/// the same letter for letter at both ends are left out.
pub(super) fn align(before: &[&str], after: &[&str]) -> (Vec<Step>, usize) {
    let alike = |(a, b): &(&&str, &&str)| a == b;
    let head = before.iter().zip(after).take_while(alike).count();
    let (rest, other) = (&before[head..], &after[head..]);
    let tail = rest.iter().rev().zip(other.iter().rev()).take_while(alike).count();
    let rest = &rest[..rest.len() - tail];
    let other = &other[..other.len() - tail];
    let mut steps = Vec::new();
    let (mut at, mut at_other) = (0, 0);
    let (matched, work) = matches(rest, other);
    for (found, found_other) in matched {
        gap(&mut steps, head, (at, found), (at_other, found_other));
        // Also these are compared: a hash may lie.
        steps.push(Step::Both(head + found, head + found_other));
        (at, at_other) = (found + 1, found_other + 1);
    }
    gap(&mut steps, head, (at, rest.len()), (at_other, other.len()));
    (steps, work)
}

/// What lies between two matches: pairs as far as they go, then the rest of the longer side.
fn gap(steps: &mut Vec<Step>, head: usize, before: (usize, usize), after: (usize, usize)) {
    let (many, others) = (before.1 - before.0, after.1 - after.0);
    let pairs = many.min(others);
    steps.extend((0..pairs).map(|i| Step::Both(head + before.0 + i, head + after.0 + i)));
    steps.extend((pairs..many).map(|i| Step::Removed(head + before.0 + i)));
    steps.extend((pairs..others).map(|i| Step::Added(head + after.0 + i)));
}

/// The longest row of elements that both have, in order.
fn matches(before: &[&str], after: &[&str]) -> (Vec<(usize, usize)>, usize) {
    if before.is_empty() || after.is_empty() {
        return (Vec::new(), 0);
    }
    let hashed = |list: &[&str]| list.iter().map(|value| scan::hash(value)).collect::<Vec<_>>();
    let (a, b) = (hashed(before), hashed(after));
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let mut found: Vec<_> = (0..head).map(|i| (i, i)).collect();
    let (rest, other) = (&a[head..], &b[head..]);
    let pairs = rest.len().saturating_mul(other.len());
    if pairs > PAIRS_MAX {
        return (found, 0);
    }
    // At i and j: how long a row can be that begins there or later.
    let width = other.len() + 1;
    let mut longest = vec![0_u32; (rest.len() + 1) * width];
    for i in (0..rest.len()).rev() {
        for j in (0..other.len()).rev() {
            longest[i * width + j] = match rest[i] == other[j] {
                true => longest[(i + 1) * width + j + 1] + 1,
                false => longest[(i + 1) * width + j].max(longest[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < rest.len() && j < other.len() {
        if rest[i] == other[j] {
            found.push((head + i, head + j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    (found, pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_or_taken_out_moves_nothing_else() {
        use Step::{Added, Both, Removed};
        let cases: [(&[&str], &[&str], &[Step]); 6] = [
            (&["1", "2"], &["1", "2"], &[]),
            (&["1", "2"], &["1", "9", "2"], &[Added(1)]),
            (&["1", "9", "2"], &["1", "2"], &[Removed(1)]),
            (&["1", "2", "3"], &["1", "9", "3"], &[Both(1, 1)]),
            (&[], &["1", "2"], &[Added(0), Added(1)]),
            (
                &["1", "2", "3", "4"],
                &["0", "2", "7", "3", "5"],
                &[Both(0, 0), Both(1, 1), Added(2), Both(2, 3), Both(3, 4)],
            ),
        ];
        for (before, after, expected) in cases {
            assert_eq!(align(before, after).0, expected, "case: {before:?} {after:?}");
        }
    }
}
