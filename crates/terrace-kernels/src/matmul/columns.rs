//! Columns several at a time.

use super::Column;

/// Products of a part of a panel.
pub(super) trait Products {
    /// Adds those with `N` columns to their results.
    ///
    /// # Safety
    /// As for [`super::Product::run`].
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]);

    /// Follows each addition: requests memory.
    fn request(&self) {}
}

/// Adds the products with all columns, four at a time.
///
/// # Safety
/// As for [`super::Product::run`].
#[inline(always)]
pub(super) unsafe fn by_fours(columns: &[Column], products: &impl Products) {
    for columns in columns.chunks(4) {
        // SAFETY: the caller's contract.
        unsafe {
            match *columns {
                [a] => products.add(&[a]),
                [a, b] => products.add(&[a, b]),
                [a, b, c] => products.add(&[a, b, c]),
                [a, b, c, d, ..] => products.add(&[a, b, c, d]),
                [] => {}
            }
        }
        products.request();
    }
}

/// Adds the products with all columns, six at a time.
///
/// # Safety
/// As for [`super::Product::run`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn by_sixes(columns: &[Column], products: &impl Products) {
    for columns in columns.chunks(6) {
        // SAFETY: the caller's contract.
        unsafe {
            match *columns {
                [a] => products.add(&[a]),
                [a, b] => products.add(&[a, b]),
                [a, b, c] => products.add(&[a, b, c]),
                [a, b, c, d] => products.add(&[a, b, c, d]),
                [a, b, c, d, e] => products.add(&[a, b, c, d, e]),
                [a, b, c, d, e, f, ..] => products.add(&[a, b, c, d, e, f]),
                [] => {}
            }
        }
        products.request();
    }
}

/// Adds the products with all columns, eight at a time.
///
/// # Safety
/// As for [`super::Product::run`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn by_eights(columns: &[Column], products: &impl Products) {
    for columns in columns.chunks(8) {
        // SAFETY: the caller's contract.
        unsafe {
            match *columns {
                [a] => products.add(&[a]),
                [a, b] => products.add(&[a, b]),
                [a, b, c] => products.add(&[a, b, c]),
                [a, b, c, d] => products.add(&[a, b, c, d]),
                [a, b, c, d, e] => products.add(&[a, b, c, d, e]),
                [a, b, c, d, e, f] => products.add(&[a, b, c, d, e, f]),
                [a, b, c, d, e, f, g] => products.add(&[a, b, c, d, e, f, g]),
                [a, b, c, d, e, f, g, h, ..] => products.add(&[a, b, c, d, e, f, g, h]),
                [] => {}
            }
        }
        products.request();
    }
}
