//! Alignment of two arrays, so that an insertion or removal in the middle does not make every later
//! element look changed.

use std::ops::Range;

use super::json_scan;

/// The largest table (elements times elements) that the longest common subsequence may take.
const PAIRS_MAX: usize = 250_000;

/// One step from the first array to the second, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlignStep {
    /// Elements to compare with each other; they may be equal.
    Both(usize, usize),
    Removed(usize),
    Added(usize),
}

/// The steps from one array to the other, and the work it took to find them. Identical elements at
/// both ends are left out.
pub(super) fn align(before: &[&str], after: &[&str]) -> (Vec<AlignStep>, usize) {
    let is_equal = |(a, b): &(&&str, &&str)| a == b;
    let head = before.iter().zip(after).take_while(is_equal).count();
    let (rest, other) = (&before[head..], &after[head..]);
    let tail = rest.iter().rev().zip(other.iter().rev()).take_while(is_equal).count();
    let rest = &rest[..rest.len() - tail];
    let other = &other[..other.len() - tail];
    let mut steps = Vec::new();
    let (mut at, mut at_other) = (0, 0);
    let (matched, work) = common_elements(rest, other);
    for (found, found_other) in matched {
        push_gap(&mut steps, head + at..head + found, head + at_other..head + found_other);
        // These are compared too: equal hashes do not prove equality.
        steps.push(AlignStep::Both(head + found, head + found_other));
        (at, at_other) = (found + 1, found_other + 1);
    }
    push_gap(&mut steps, head + at..head + rest.len(), head + at_other..head + other.len());
    (steps, work)
}

/// Steps for the elements between two matches: pairs first, then the rest of the longer side.
fn push_gap(steps: &mut Vec<AlignStep>, before: Range<usize>, after: Range<usize>) {
    let pairs = before.len().min(after.len());
    steps.extend((0..pairs).map(|i| AlignStep::Both(before.start + i, after.start + i)));
    steps.extend((before.start + pairs..before.end).map(AlignStep::Removed));
    steps.extend((after.start + pairs..after.end).map(AlignStep::Added));
}

/// The longest common subsequence as pairs of indices, and the work it took.
fn common_elements(before: &[&str], after: &[&str]) -> (Vec<(usize, usize)>, usize) {
    if before.is_empty() || after.is_empty() {
        return (Vec::new(), 0);
    }
    let hashed =
        |list: &[&str]| list.iter().map(|value| json_scan::hash(value)).collect::<Vec<_>>();
    let (a, b) = (hashed(before), hashed(after));
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let mut common: Vec<_> = (0..head).map(|i| (i, i)).collect();
    let (rest, other) = (&a[head..], &b[head..]);
    let pairs = rest.len().saturating_mul(other.len());
    if pairs > PAIRS_MAX {
        return (common, 0);
    }
    // longest[i, j] is the length of the longest common subsequence of rest[i..] and other[j..].
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
            common.push((head + i, head + j));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    (common, pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insertion_or_removal_does_not_shift_other_elements() {
        use AlignStep::{Added, Both, Removed};
        let cases: [(&[&str], &[&str], &[AlignStep]); 6] = [
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
